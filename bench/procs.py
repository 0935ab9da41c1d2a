"""What a process uses, from /proc."""
import os


def cpu_s(pid):
    """Time on a core of a process, all living threads, in seconds; the scheduler counts it in nanoseconds."""
    total = 0
    for task in os.listdir('/proc/%d/task' % pid):
        with open('/proc/%d/task/%s/schedstat' % (pid, task)) as f:
            total += int(f.read().split()[0])
    return total / 1e9


def rss_mib(pid):
    with open('/proc/%d/status' % pid) as f:
        st = dict(ln.split(':', 1) for ln in f)
    return {k: int(st[k].split()[0]) / 1024 for k in ('VmRSS', 'RssAnon', 'RssFile', 'RssShmem')}
