#include "worker.h"

int main(int argc, char **argv)
{
    return worker_main(argc, argv, &eng_real, true, NULL);
}
