"""What the stub engine says: its tokens follow from seed and position."""
import os
import subprocess

from . import stream
from .appliance import program


def ids(seed, n, options=''):
    argv = [program('vitriol-stub'), '--ref', str(seed), str(n)] + ([options] if options else [])
    return [int(x) for x in subprocess.check_output(argv, text=True).split()]


def text(app, seed, n, options=''):
    """The text of the first n tokens for that seed."""
    r = stream.post(app.port, '/detokenize', {'tokens': ids(seed, n, options)})
    assert r.status == 200
    return r.json()['content']


def once(app_root, name='once'):
    """A file whose presence lets one fault happen; the stub removes it first."""
    path = os.path.join(app_root, name)
    open(path, 'w').close()
    return path
