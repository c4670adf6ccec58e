// One instruction-set level of the kernel. decode.cpp includes this file once per level, inside a namespace of the level,
// with LEVEL saying which: so there is no include guard here and in the five files below.

#include "vectors.h"
#include "inputs.h"
#include "products.h"
#include "attention.h"
#include "stages.h"
