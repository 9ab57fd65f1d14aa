/* Runs "m ID BYTE" (malloc), "a ID BYTE" (posix_memalign to 64) and "f ID" (free) lines, writes
   every block, and prints for each line: the block's offset in the heap (-1: in a mapping of its
   own, 0: a free), the minor page faults it took, and the size of the heap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINES = 20000 };
static char text[1 << 20], operation[LINES];
static int number[LINES];
static long size[LINES], offset[LINES], faults[LINES], heap[LINES];
static char *block[LINES];

static long minor_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

int main(void) {
    long length = 0, got;
    int lines = 0;
    while ((got = read(0, text + length, sizeof text - 1 - length)) > 0) length += got;
    for (char *at = text; *at && lines < LINES; at = strchr(at, '\n') + 1, lines++) {
        char *end;
        operation[lines] = *at;
        number[lines] = strtol(at + 2, &end, 10);
        size[lines] = *at == 'f' ? 0 : strtol(end, &end, 10);
    }
    /* Pages of these tables are there before anything is counted. */
    memset(offset, 1, sizeof offset);
    memset(faults, 1, sizeof faults);
    memset(heap, 1, sizeof heap);
    memset(block, 0, sizeof block);
    char *base = sbrk(0);
    for (int i = 0; i < lines; i++) {
        long before = minor_faults();
        if (operation[i] == 'f') {
            free(block[number[i]]);
            offset[i] = 0;
        } else {
            void *found = 0;
            if (operation[i] == 'm') found = malloc(size[i]);
            else if (posix_memalign(&found, 64, size[i])) return 3;
            memset(found, 1, size[i]);
            block[number[i]] = found;
            offset[i] = (char *)found >= base && (char *)found < (char *)sbrk(0)
                            ? (char *)found - base : -1;
        }
        faults[i] = minor_faults() - before;
        heap[i] = (char *)sbrk(0) - base;
    }
    for (int i = 0; i < lines; i++) {
        int n = snprintf(text, sizeof text, "%ld %ld %ld\n", offset[i], faults[i], heap[i]);
        if (write(1, text, n) != n) return 4;
    }
    return 0;
}
