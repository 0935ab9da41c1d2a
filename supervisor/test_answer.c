/* A probe for tests of vitriold: notes in RUN_DIR/../calls what it was asked, and does what RUN_DIR/../answer says: "hang",
 * "exit N TEXT", or the line to answer with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *beside(const char *name, const char *mode)
{
    char path[256];
    const char *run = getenv("VITRIOL_RUN_DIR");
    snprintf(path, sizeof path, "%.200s/../%s", run != NULL ? run : ".", name);
    return fopen(path, mode);
}

int main(int argc, char **argv)
{
    char line[512] = "";
    int status, at = 0;
    FILE *calls = beside("calls", "a"), *f = beside("answer", "r");
    if (calls == NULL || f == NULL || argc < 3 || fgets(line, sizeof line, f) == NULL)
        return 70;
    fprintf(calls, "%s %s\n", argv[1], argv[2]);
    fclose(calls);
    fclose(f);
    if (strcmp(line, "hang\n") == 0)
        for (;;)
            pause();
    if (sscanf(line, "exit %d %n", &status, &at) == 1) {
        fputs(line + at, stderr);
        return status;
    }
    fputs(line, stdout);
    return 0;
}
