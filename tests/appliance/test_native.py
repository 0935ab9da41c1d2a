"""The llama-server surface."""
import os
import re
import time

import pytest
import yaml

from harness import stream
from harness.appliance import TOP, Appliance, wait_for
from harness.stream import check_error, get, post

PROMPT = 'It was a cold evening, and the old man'


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 1024, 'engine.slots': 4}) as a:
        yield a


def test_health(app):
    r = get(app.port, '/health')
    assert r.status == 200 and r.json()['status'] == 'ok'
    assert get(app.port, '/v1/health').status == 200


def test_health_says_who_answers(app):
    """pid and instance, so that a stranger on the port cannot pass for us."""
    h = get(app.port, '/health').json()
    assert h['pid'] == app.pid and h['instance']


def test_completion(app):
    a = post(app.port, '/completion', {'prompt': PROMPT, 'n_predict': 16, 'temperature': 0}).json()
    assert a['stop'] is True and a['content'] and a['tokens_predicted'] == 16 and a['stop_type'] == 'limit'
    t = a['timings']
    assert t['cache_n'] + t['prompt_n'] == a['tokens_evaluated']
    assert a['content'] == app.text(PROMPT, 16)


def test_completion_stream(app):
    s = app.stream(PROMPT, 16, path='/completion', n_predict=16).run()
    assert stream.check_transcript(s, ('normal',)) == 'normal'
    assert s.text == app.text(PROMPT, 16)


def test_tokenize_round_trip(app):
    for text in ['Hello, world!', 'caf\u00e9 \u2014 na\u00efve', '  two  spaces\n\n', '\u4f60\u597d \U0001f600', '123 4567']:
        ids = post(app.port, '/tokenize', {'content': text}).json()['tokens']
        assert ids and all(isinstance(i, int) for i in ids)
        assert post(app.port, '/detokenize', {'tokens': ids}).json()['content'] == text
    pieces = post(app.port, '/tokenize', {'content': 'Hello there', 'with_pieces': True}).json()['tokens']
    assert ''.join(p['piece'] for p in pieces) == 'Hello there'


def test_tokens_as_prompt_give_the_same_text(app):
    ids = post(app.port, '/tokenize', {'content': PROMPT}).json()['tokens']
    assert app.text(ids, 12) == app.text(PROMPT, 12)


@pytest.mark.parametrize('key', ['messages', 'tools', 'add_generation_prompt', 'bos_token'])
def test_template_switches_cannot_replace_the_request(app, key):
    r = post(app.port, '/apply-template', {'messages': [{'role': 'user', 'content': 'Hi'}],
                                           'chat_template_kwargs': {key: []}})
    assert r.status == 400 and r.json()['error']['param'] == 'chat_template_kwargs', r.text


def test_apply_template(app):
    p = post(app.port, '/apply-template', {'messages': [{'role': 'user', 'content': 'Hi'}]}).json()['prompt']
    assert p == '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'


def test_props(app):
    p = get(app.port, '/props').json()
    assert p['total_slots'] == 4
    assert p['default_generation_settings']['n_ctx'] == 1024 and p['n_ctx'] == 1024
    assert 'im_start' in p['chat_template']
    assert p['checkpoints'] == {'available': True}
    assert p['chat_template_caps']['supports_system_role'] and p['chat_template_caps']['supports_tools']


def test_infill_needs_a_model_that_knows_it(app):
    """The embedded vocabulary has no marks for a gap; the layouts themselves are tested in gateway/test_gateway.c."""
    for path, body, status in (('/infill', {'input_prefix': 'f(', 'input_suffix': ')'}, 501), ('/v1/completions', {'prompt': 'f(', 'suffix': ')'}, 400)):
        r = post(app.port, path, body)
        assert r.status == status
        check_error(r.status, r.headers, r.read())
    assert get(app.port, '/lora-adapters').json() == []


def test_slots(app):
    s = get(app.port, '/slots').json()
    assert [x['id'] for x in s] == [0, 1, 2, 3] and all(x['n_ctx'] == 1024 and x['is_processing'] is False for x in s)


def test_prefix_is_reused(app):
    prompt = 'A prefix that is used twice. ' * 20
    app.text(prompt, 4)
    a = post(app.port, '/completion', {'prompt': prompt, 'n_predict': 4, 'temperature': 0}).json()
    assert a['timings']['cache_n'] >= a['tokens_evaluated'] - 256
    off = post(app.port, '/completion', {'prompt': prompt, 'n_predict': 4, 'temperature': 0, 'cache_prompt': False}).json()
    assert off['timings']['cache_n'] == 0 and off['content'] == a['content']


RULES = os.path.join(TOP, 'units', 'vitriol.rules.yml')


def named_series(rules):
    return {n for g in rules['groups'] for r in g['rules'] for n in re.findall(r'\bvitriol_\w+', re.sub('"[^"]*"', '', r['expr']))}


def test_alert_rules_name_real_series(app):
    """An alert on a series that nobody writes would be silent for ever."""
    with open(RULES) as f:
        rules = yaml.safe_load(f)
    names = [r['alert'] for g in rules['groups'] for r in g['rules']]
    assert len(names) == len(set(names)) and all(r['annotations']['summary'] and r['labels']['severity']
                                                for g in rules['groups'] for r in g['rules'])
    silence = [r['expr'] for g in rules['groups'] if g['name'] == 'vitriol-silence' for r in g['rules']]
    assert any('absent(' in e for e in silence) and any('unless' in e for e in silence)

    def lacking():
        r = get(app.port, '/metrics')
        r.read()
        text = r.raw.decode()
        return sorted(n for n in named_series(rules) if not re.search(r'(?m)^%s[ {]' % n, text))

    wait_for('every series of the rules is written', lambda: not lacking(), step=0.5)


def test_metrics(app):
    def settled():
        """Once nothing was added to it for a while: engines report once a second."""
        seen = [-1.0, 0.0]

        def still():
            n = app.metric('llamacpp:tokens_predicted_total')
            if n != seen[0]:
                seen[:] = n, time.monotonic()
            return time.monotonic() - seen[1] > 2.5
        wait_for('the counter stands still', still)
        return seen[0]
    before = settled()
    app.text(PROMPT, 10)
    wait_for('it is counted', lambda: app.metric('llamacpp:tokens_predicted_total') > before)
    assert settled() - before == 10
    r = get(app.port, '/metrics')
    r.read()
    assert r.headers['content-type'].startswith('text/plain; version=0.0.4')
    for line in r.raw.decode().splitlines():
        assert line.startswith('#') or ('nan' not in line.lower() and 'inf' not in line.split()[-1].lower()), line


def test_evictions_are_counted(app):
    """More conversations than the pool holds: the oldest pages make room, and that is told."""
    def evicted():
        return app.metric('vitriol_kv_evicted_pages_total')
    before = evicted()
    for i in range(8):
        assert post(app.port, '/completion', {'prompt': [1000 + 7 * i] * 900, 'n_predict': 1}).status == 200
    wait_for('pages were given up', lambda: evicted() > before)
    assert app.metric('vitriol_kv_evicted_tokens_total') >= 256 * (evicted() - before)


def test_metrics_format(app):
    """Each family once, its samples together, no sample twice."""
    text = get(app.port, '/metrics').read().decode()
    families = [ln.split()[2] for ln in text.splitlines() if ln.startswith('# TYPE')]
    assert len(families) == len(set(families)), [f for f in families if families.count(f) > 1]
    samples = [ln.rsplit(' ', 1)[0] for ln in text.splitlines() if ln and not ln.startswith('#')]
    assert len(samples) == len(set(samples)), [s for s in samples if samples.count(s) > 1]
    order = [s.split('{')[0] for s in samples]
    runs = [n for i, n in enumerate(order) if i == 0 or order[i - 1] != n]
    assert len(runs) == len(set(runs)), [n for n in runs if runs.count(n) > 1]


def test_unknown_route_and_method(app):
    r = get(app.port, '/nothing')
    r.read()
    assert r.status == 404
    check_error(404, r.headers, r.raw)
    r = get(app.port, '/v1/chat/completions')
    r.read()
    assert r.status == 405 and 'POST' in r.headers['allow']


def test_head_and_options(app):
    r = stream.request(app.port, 'HEAD', '/health')
    assert r.status == 200
    r = stream.request(app.port, 'OPTIONS', '/v1/chat/completions',
                       headers={'Origin': 'http://a.example', 'Access-Control-Request-Headers': 'authorization'})
    assert r.status == 200 and r.headers['access-control-allow-origin'] == 'http://a.example'
    assert 'authorization' in r.headers['access-control-allow-headers']


def test_keep_alive_connection_serves_many(app):
    s = stream.connect(app.port)
    for _ in range(5):
        r = stream.request(app.port, 'GET', '/health', sock=s, headers={'Connection': 'keep-alive'})
        assert r.status == 200
        r.read()


def test_chunked_request_body(app):
    s = stream.connect(app.port)
    body = b'{"content":"Hello"}'
    s.sendall(b'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n' +
              b'5\r\n' + body[:5] + b'\r\n%x\r\n' % len(body[5:]) + body[5:] + b'\r\n0\r\n\r\n')
    assert stream.Response(s).json()['tokens']


def test_api_keys(make, tmp_path):
    keys = tmp_path / 'keys'
    keys.write_text('key-one\nkey-two\n')
    keys.chmod(0o600)
    a = make(sets={'http.api_keys_file': str(keys)})
    body = {'prompt': 'x', 'max_tokens': 1}
    r = post(a.port, '/v1/completions', body)
    r.read()
    assert r.status == 401 and r.headers['www-authenticate'] == 'Bearer'
    check_error(401, r.headers, r.raw)
    assert r.json()['error']['message'] == 'Invalid API Key'
    assert post(a.port, '/v1/completions', body, headers={'Authorization': 'Bearer key-three'}).status == 401
    assert post(a.port, '/v1/completions', body, headers={'Authorization': 'Bearer key-two'}).status == 200
    assert post(a.port, '/v1/completions', body, headers={'X-Api-Key': 'key-one'}).status == 200
    for public in ('/health', '/v1/models'):
        assert get(a.port, public).status == 200
    for private in ('/metrics', '/slots', '/props'):
        assert get(a.port, private).status == 401


def test_reranking_is_not_supported(app):
    r = post(app.port, '/v1/rerank', {'query': 'x', 'documents': ['y']})
    r.read()
    assert r.status == 501
    check_error(501, r.headers, r.raw)
