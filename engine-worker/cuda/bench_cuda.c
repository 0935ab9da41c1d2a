/* Prints the tables of bench_kernels.cu. */
int bench_cuda(void);

int main(void)
{
    return bench_cuda();
}
