#include <stdio.h>
#include <string.h>

#define MASK 0x00000000FFFFFFFF
#define SWAP(a, b) do { int t = (a); (a) = (b); (b) = t; } while (0)

struct size {
    int width;
    int height;
};

static const struct size none = {0, 0};

/* The area (in points); it's never negative. */
int area(const struct size *of)
{
    if (of == NULL) {
        return none.width;
    }
#ifdef DEBUG
    printf("%d x %d\n", of->width, of->height);
#endif
    return of->width * of->height;
}

int main(void)
{
    struct size one = {.width = 3, .height = 4};
    char quote = '\'', open = '(';
    printf("%c%d%c\n", quote, area(&one), open);
    return 0;
}
