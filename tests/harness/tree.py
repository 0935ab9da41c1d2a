"""The files of the repository, for lints."""
import os

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
SKIP = {'.git', '.venv', '.cache', '__pycache__', '.pytest_cache', 'models'}
CODE = ('common', 'supervisor', 'engine-worker', 'external-worker', 'persist-sidecar', 'vault', 'gateway', 'pull', 'oom-shield', 'officina', 'bench')


def files(ends=(), under=None):
    """Paths relative to the top, of source files with one of the endings (all without)."""
    out = []
    for root, dirs, names in os.walk(TOP):
        rel = os.path.relpath(root, TOP)
        dirs[:] = sorted(d for d in dirs if d not in SKIP and not (rel == '.' and d.startswith('build')))
        for n in sorted(set(names) - SKIP):
            if rel == '.' and n.startswith('build'):
                continue  # logs of builds
            path = os.path.normpath(os.path.join(rel, n))
            if (not ends or n.endswith(tuple(ends))) and (under is None or path.split(os.sep)[0] in under):
                out.append(path)
    return out


def read(path):
    with open(os.path.join(TOP, path), encoding='utf-8', errors='replace') as f:
        return f.read()
