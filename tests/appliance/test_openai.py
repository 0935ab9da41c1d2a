"""What the public `openai` client sees."""
import openai
import pytest

from harness.appliance import Appliance
from harness.text import prose


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 1024, 'engine.slots': 4}) as a:
        yield a


@pytest.fixture(scope='module')
def client(app):
    return openai.OpenAI(base_url='http://127.0.0.1:%d/v1' % app.port, api_key='sk-no-key-required', max_retries=0)


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ['lapis-hybrid-q4_k_m']
    assert models[0].object == 'model' and models[0].meta['n_ctx'] == 1024


def test_chat(client):
    r = client.chat.completions.create(model='lapis-hybrid-q4_k_m', max_tokens=24, temperature=0,
                                       messages=[{'role': 'user', 'content': 'Continue this passage: The sea was'}])
    c = r.choices[0]
    assert r.id.startswith('chatcmpl-') and r.object == 'chat.completion'
    assert c.message.role == 'assistant' and c.message.content
    assert c.finish_reason in ('stop', 'length')
    assert r.usage.completion_tokens <= 24 and r.usage.prompt_tokens > 5
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def test_chat_stream_with_usage_equals_plain(client):
    ask = dict(model='x', max_tokens=40, temperature=0, messages=[
        {'role': 'system', 'content': 'You are a narrator.'}, {'role': 'user', 'content': 'Continue this passage: The sea was'}])
    plain = client.chat.completions.create(**ask)
    text, usage, roles, finish = '', None, 0, None
    for chunk in client.chat.completions.create(stream=True, stream_options={'include_usage': True}, **ask):
        if chunk.usage:
            assert chunk.choices == []
            usage = chunk.usage
            continue
        assert len(chunk.choices) == 1
        roles += chunk.choices[0].delta.role is not None
        text += chunk.choices[0].delta.content or ''
        finish = chunk.choices[0].finish_reason or finish
    assert text == plain.choices[0].message.content
    assert roles == 1 and finish == plain.choices[0].finish_reason
    assert usage.prompt_tokens == plain.usage.prompt_tokens
    assert usage.completion_tokens == plain.usage.completion_tokens


def test_stream_without_usage_option_has_none(client):
    for chunk in client.chat.completions.create(model='x', max_tokens=4, stream=True,
                                                messages=[{'role': 'user', 'content': 'Hello'}]):
        assert chunk.usage is None


def test_text_completion_and_stop(client):
    base = client.completions.create(model='x', prompt='It was a cold evening, and the old man', max_tokens=60, temperature=0)
    text = base.choices[0].text
    assert base.usage.completion_tokens == 60 and base.choices[0].finish_reason == 'length'
    # a stop string that straddles tokens: from the middle of one word to the middle of a later one
    at = text.index(' ', 20) - 2
    stop = text[at:at + 5]
    cut = text[:text.index(stop)]
    r = client.completions.create(model='x', prompt='It was a cold evening, and the old man', max_tokens=60, temperature=0,
                                  stop=[stop])
    assert r.choices[0].text == cut and r.choices[0].finish_reason == 'stop'
    pieces = [c.choices[0].text for c in client.completions.create(
        model='x', prompt='It was a cold evening, and the old man', max_tokens=60, temperature=0, stop=[stop], stream=True)]
    assert ''.join(pieces) == cut


def test_seed_repeats_and_other_seed_differs(client):
    def one(seed):
        return client.completions.create(model='x', prompt='The road', max_tokens=40, temperature=1.0, seed=seed).choices[0].text
    assert one(7) == one(7)
    assert len({one(s) for s in (7, 8, 9)}) > 1


def test_over_long_prompt(client):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model='x', messages=[{'role': 'user', 'content': prose(6000)}], stream=True)
    body = e.value.body
    assert body['type'] == 'exceed_context_size_error' and body['code'] == 400
    assert body['n_ctx'] == 1024 and body['n_prompt_tokens'] > 1024
    assert 'exceeds the available context size (1024 tokens)' in body['message']


def test_prompt_that_just_fits_is_served(client):
    """max_tokens is an upper bound: it is clamped to the room that is left."""
    r = client.completions.create(model='x', prompt=prose(3500), max_tokens=5000, temperature=0)
    assert r.usage.total_tokens <= 1024
    assert r.choices[0].finish_reason == 'length' or r.usage.total_tokens < 1024


def test_n_choices(client):
    r = client.completions.create(model='x', prompt='The road', max_tokens=12, n=3, temperature=1.2, seed=3)
    assert [c.index for c in r.choices] == [0, 1, 2]
    assert len({c.text for c in r.choices}) > 1
    greedy = client.completions.create(model='x', prompt='The road', max_tokens=12, n=2, temperature=0)
    assert greedy.choices[0].text == greedy.choices[1].text


def test_logprobs(client):
    r = client.chat.completions.create(model='x', max_tokens=5, temperature=0, logprobs=True, top_logprobs=3,
                                       messages=[{'role': 'user', 'content': 'Hello'}])
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    for t in content:
        assert len(t.top_logprobs) == 3 and t.logprob <= 0
        assert abs(t.top_logprobs[0].logprob - t.logprob) < 1e-4 and t.top_logprobs[0].token == t.token
        lps = [x.logprob for x in t.top_logprobs]
        assert lps == sorted(lps, reverse=True)


def test_logit_bias_bans_a_token(client, app):
    base = client.completions.create(model='x', prompt='It was a cold evening, and the', max_tokens=1, temperature=0)
    from harness import stream
    first = stream.post(app.port, '/tokenize', {'content': base.choices[0].text}).json()['tokens'][0]
    banned = client.completions.create(model='x', prompt='It was a cold evening, and the', max_tokens=1, temperature=0,
                                       logit_bias={str(first): -100})
    assert banned.choices[0].text != base.choices[0].text
