"""A public model as people download it: Gemma 3 270M, Q4_K_M.

The figures are from another implementation, read once with the same file on 2026-11-30: ik_llama.cpp, CPU (AVX2), f16 KV,
`llama-server` /completion with temperature 0, and `llama-perplexity -c 512` on models/eval.txt after two windows."""
import json
import os
import shutil
import struct
import subprocess

import pytest

from harness.appliance import TOP, clean_env, program
from harness.fetch import gemma
from harness.stream import post

# Prompts whose continuations leave no token to the rounding of the last digits.
CONTINUATIONS = {
    'def fibonacci(n):\n': '    if n == 0:\n        return 0\n    elif n == 1:\n        return 1\n    elif n == 2:\n        return 2\n'
                           '    elif n == 3:\n        ',
    'The second reason for his delay was a personal one.':
        '\n\nThe third reason for his delay was a personal one.\n\nThe fourth reason for his delay was a personal one.\n\nThe fifth '
        'reason for his delay was a personal one.\n\nThe sixth reason for his delay was a personal one.',
}
PERPLEXITY = 47.1012


@pytest.fixture(scope='module')
def model():
    return gemma()


def tool(*args):
    p = subprocess.run([program('vitriol-tool')] + [str(a) for a in args], env=clean_env(), stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=280)
    assert p.returncode == 0, (args, p.stderr)
    return p.stdout


@pytest.mark.parametrize('prompt', CONTINUATIONS)
def test_continuation(model, prompt):
    assert tool('run', '-m', model, '-p', prompt, '--raw', '-n', 48, '--temp', 0) == CONTINUATIONS[prompt] + '\n'


def test_perplexity(model):
    """Both round activations to eight bits, each in its own way; 1.5 % is three times what that does."""
    r = json.loads(tool('eval', '-m', model, '--text', os.path.join(TOP, 'models', 'eval.txt'), '--ctx', 512, '--windows', 2,
                        '--json'))
    print('perplexity', r['perplexity'])
    assert r['scored'] == 2 * 255 and abs(r['perplexity'] / PERPLEXITY - 1) < 0.015, r


def test_through_the_gateway(model, make):
    a = make(model=model, sets={'engine.slots': 2, 'engine.ctx_tokens': 1024})
    prompt = 'The second reason for his delay was a personal one.'
    r = post(a.port, '/completion', {'prompt': prompt, 'n_predict': 48, 'temperature': 0})
    assert r.status == 200 and r.json()['content'] == CONTINUATIONS[prompt]
    ids = post(a.port, '/tokenize', {'content': '<start_of_turn>user\nHi  there', 'add_special': True, 'parse_special': True}).json()
    assert ids['tokens'][:2] == [2, 105], ids
    r = post(a.port, '/v1/chat/completions', {'messages': CHAT})
    assert r.status == 400 and 'no chat template' in r.json()['error']['message'], 'the base model has none'


CHAT = [{'role': 'user', 'content': 'Name a colour.'}]
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + (m['role'] if m['role'] != 'assistant' else 'model') + "
            "'\\n' + m['content'] + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}")


def with_template(path, out):
    """A copy that has a chat template. Its key goes before the others, padded so that the tensors stay aligned."""
    key, align = b'tokenizer.chat_template', 32
    size = 8 + len(key) + 4 + 8 + len(TEMPLATE)
    text = TEMPLATE.encode() + b'{#' + b' ' * ((-size - 4) % align) + b'#}'
    with open(path, 'rb') as src, open(out, 'wb') as dst:
        head = src.read(24)
        dst.write(head[:16] + struct.pack('<Q', struct.unpack('<Q', head[16:])[0] + 1))
        dst.write(struct.pack('<Q', len(key)) + key + struct.pack('<IQ', 8, len(text)) + text)
        shutil.copyfileobj(src, dst, 1 << 20)


def test_chat(model, make, tmp_path):
    path = str(tmp_path / 'chat.gguf')
    with_template(model, path)
    a = make(model=path, sets={'engine.slots': 2, 'engine.ctx_tokens': 1024})
    plain = post(a.port, '/v1/chat/completions', {'messages': CHAT, 'max_tokens': 24, 'temperature': 0}).json()
    text = plain['choices'][0]['message']['content']
    rendered = '<start_of_turn>user\n%s<end_of_turn>\n<start_of_turn>model\n' % CHAT[0]['content']
    ids = post(a.port, '/tokenize', {'content': rendered, 'add_special': True, 'parse_special': True}).json()['tokens']
    assert plain['usage']['prompt_tokens'] == len(ids) and ids.count(2) == 1
    assert post(a.port, '/completion', {'prompt': rendered, 'n_predict': 24, 'temperature': 0}).json()['content'] == text != ''
    s = a.stream(CHAT[0]['content'], 24, path='/v1/chat/completions')
    s.run()
    assert s.text == text
    os.unlink(path)
