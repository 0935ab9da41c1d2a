#!/usr/bin/env python3
"""Speed of the tokenizer beside the public `tokenizers` package, one thread each, on English text: bench/tokenizer.py [FILE.gguf]

The package gets models/tokenizer.json, which is the embedded model's vocabulary; a FILE.gguf of one's own is measured alone.
Runs alternate, so that what else the machine does meets both. Best of five: ours by the wall clock, theirs in time on a core, so other load is against ours.
"""
import os
import re
import subprocess
import sys
import time

os.environ['TOKENIZERS_PARALLELISM'] = 'false'
os.environ['RAYON_NUM_THREADS'] = '1'
TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
sys.path.insert(0, os.path.join(TOP, 'tests'))

from tokenizers import Tokenizer  # noqa: E402

from harness.appliance import MODEL, program  # noqa: E402

ROUNDS = 5


def ours(model, text):
    """MB/s of one run that encodes the text three times; the first fills what is remembered of each token."""
    out = subprocess.run([program('tok_cli'), '-r', '3', model], input=text, stdout=subprocess.PIPE, check=True).stdout.decode()
    return max(float(x) for x in re.findall(r'([\d.]+) MB/s', out))


def theirs(t, text):
    t0 = time.process_time()
    t.encode(text.decode(), add_special_tokens=False)
    return len(text) / (time.process_time() - t0) / 1e6


def main():
    with open(os.path.join(TOP, 'models', 'eval.txt'), 'rb') as f:
        text = f.read() * 5
    if len(sys.argv) > 1:
        print('%s: %.1f MB/s' % (sys.argv[1], max(ours(sys.argv[1], text) for _ in range(ROUNDS))))
        return
    t = Tokenizer.from_file(os.path.join(TOP, 'models', 'tokenizer.json'))
    pairs = [(ours(MODEL, text), theirs(t, text)) for _ in range(ROUNDS)]
    a, b = max(p[0] for p in pairs), max(p[1] for p in pairs)
    print('vitriol %.1f MB/s, tokenizers %.1f MB/s, %.1f times; %d bytes of English, load average %.1f' %
          (a, b, a / b, len(text), os.getloadavg()[0]))


main()
