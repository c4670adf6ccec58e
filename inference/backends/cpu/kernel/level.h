// One instruction-set level of the kernel. decode.cpp includes this file once per level, inside a namespace of the level,
// with LEVEL set to it, so this file and the six that it includes have no include guards.

#include "vectors.h"
#include "inputs.h"
#include "products.h"
#include "attention.h"
#include "recurrence.h"
#include "stages.h"
