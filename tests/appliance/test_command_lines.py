"""What the tools without the appliance say to a command line that is not right: the option as it was written, and the fix."""
import os
import subprocess

import pytest

from harness.appliance import MODEL, clean_env, program

NONE = '/nonexistent/file'
WRONG = [
    ('run -m M -p x -f M', 64, '-p TEXT and -f FILE exclude each other'),
    ('run -m M', 64, '-p TEXT or -f FILE is needed'),
    ('run -m %s -p x' % NONE, 66, '-m %s: No such file' % NONE),
    ('run --model %s -p x' % NONE, 66, '--model %s: No such file' % NONE),
    ('run -m M -f %s' % NONE, 66, '-f %s: No such file' % NONE),
    ('run -m M --file=%s' % NONE, 66, '--file %s: No such file' % NONE),
    ('run -m /etc -p x', 66, '-m /etc: this is a folder'),
    ('run -m M -p x --raw=1', 64, '--raw takes no value'),
    ('eval -m M --text %s' % NONE, 66, '--text %s: No such file' % NONE),
    ('eval -m M --tokens %s --logits x' % NONE, 66, '--tokens %s: No such file' % NONE),
    ('eval -m M --tokens IDS --logits %s' % NONE, 74, '--logits: cannot create'),
    ('eval -m M --text M --tokens M --logits x', 64, 'exclude each other'),
    ('eval -m M --text M --ctx 0', 64, '--ctx takes a whole number from 2'),
    ('eval -m M --text M -c 0', 64, '-c takes a whole number from 2'),
    ('eval -m M --text M --ctx=0', 64, '--ctx takes a whole number from 2'),
    ('bench -m %s' % NONE, 66, '-m %s: No such file' % NONE),
    ('bench -m M -p 0 -n 0', 64, 'nothing to measure'),
]


@pytest.mark.parametrize('line,code,says', WRONG, ids=[w[0].replace('/', '_') for w in WRONG])
def test_wrong_command_line(tmp_path, line, code, says):
    ids = tmp_path / 'ids'
    ids.write_text('1 2 3')
    words = [{'M': MODEL, 'IDS': str(ids)}.get(w, w) for w in line.split()]
    p = subprocess.run([program('vitriol-tool')] + words, env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=60, cwd=tmp_path)
    assert p.returncode == code, p
    assert says in p.stderr and p.stdout == '', p
    assert os.listdir(tmp_path) == ['ids']


def test_configuration_file_that_is_not_there():
    p = subprocess.run([program('vitriold'), '--config', NONE], env=clean_env(), capture_output=True, text=True, timeout=60)
    assert p.returncode == 78 and '--config: %s: No such file' % NONE in p.stderr, p


@pytest.mark.parametrize('words,says', [
    (['stop', ''], 'an empty argument has no meaning here'),
    (['suspects', 'clear', ''], 'an empty argument has no meaning here'),
    (['bless', 'tag', '--note', 'n' * 100000], '--note: 100000 bytes are too long'),
    (['forbid', 'k=' + 'v' * 5000], 'k=vvv'),
])
def test_arguments_of_vitriolctl(tmp_path, words, says):
    """A variable that a script never set stops no engine; what no frame holds is refused as such."""
    p = subprocess.run([program('vitriolctl'), '--run-dir', str(tmp_path)] + words, env=clean_env(), capture_output=True,
                       text=True, timeout=60)
    assert p.returncode == 64 and says in p.stderr, p
