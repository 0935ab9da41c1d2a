"""Officina before a real appliance with the embedded model."""

from harness import stream
from harness.workshop import Workshop


class Engine:
    def __init__(self, port):
        self.url = 'http://127.0.0.1:%d' % port


def test_health_props_and_counts(make):
    a = make(sets={'engine.ctx_tokens': 4096, 'engine.slots': 1})
    h = stream.get(a.port, '/health').json()
    assert h['state'] == 'ok' and h['boot_id'].endswith('.%d' % h['generation'])
    assert stream.get(a.port, '/props').json()['cache_cut'] == 'border'  # the embedded model has a recurrent state
    body = {'messages': [{'role': 'user', 'content': 'Tell me of the sea.'}], 'max_tokens': 1}
    n = stream.post(a.port, '/v1/chat/completions/input_tokens', body).json()
    usage = stream.post(a.port, '/v1/chat/completions', body).json()['usage']
    assert n == {'object': 'response.input_tokens', 'input_tokens': usage['prompt_tokens']}
    assert stream.post(a.port, '/v1/chat/completions/input_tokens', {'messages': 3}).status == 400


def test_an_engine_that_is_killed_while_it_writes(make, tmp_path):
    """A pause, and a whole answer."""
    a = make(sets={'engine.ctx_tokens': 8192, 'engine.slots': 1})
    w = Workshop(tmp_path)
    w.gateway = Engine(a.port)
    t = w.start()
    t.put(type='user', text='Tell me a long story of the sea.')
    begin = t.until('text')['text']
    killed = a.kill('engine0')
    end = t.until('turn_end')
    assert end['state'] == 'done', t.events
    # How many events carry the answer is the kernel's choice, who takes what has come at once; not how much it is.
    answer = ''.join(e['text'] for e in t.events if e['type'] == 'text')
    assert answer.startswith(begin) and len(answer) > len(begin) and a.next_generation('engine0', killed)
    assert t.close() == 0
