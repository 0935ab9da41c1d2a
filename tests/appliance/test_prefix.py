"""Prompts whose beginning only the store knows: it comes back as blocks, in bounded time, or not at all."""
import os
import signal
import time

import pytest

from harness.appliance import wait_for
from harness.stream import post
from harness.text import prose

SETS = {'engine.ctx_tokens': 4096, 'engine.slots': 2, 'store.restore_budget_s': 0}
N = 24


def chat(app, messages, n=N):
    r = post(app.port, '/v1/chat/completions', {'messages': messages, 'max_tokens': n, 'temperature': 0})
    body = r.json()
    assert r.status == 200, body
    return body


def converse(app):
    """Four turns; returns the messages of the last and its answer."""
    messages = []
    for turn in range(4):
        messages.append({'role': 'user', 'content': prose(1500, 1000 + 4000 * turn)})
        answer = chat(app, messages)
        if turn < 3:
            messages.append({'role': 'assistant', 'content': answer['choices'][0]['message']['content']})
    return messages, answer


def saved(app):
    app.ctl('checkpoint')


def cached(answer):
    return answer['usage']['prompt_tokens_details']['cached_tokens']


def check_reuse(app, answer, first):
    n = answer['usage']['prompt_tokens']
    assert n > 1024 and cached(answer) >= n - 256, answer['usage']
    assert answer['timings']['cache_n'] == cached(answer)
    assert answer['choices'][0]['message']['content'] == first['choices'][0]['message']['content']
    assert app.metric('vitriol_restored_tokens') == 0
    wait_for('it is told', lambda: app.metric('vitriol_prefix_restored_tokens_total') >= n - 256, 10)


@pytest.mark.parametrize('how', ['stop', 'power'])
def test_fourth_turn_after_a_restart_of_everything(make, how):
    app = make(sets=SETS)
    messages, first = converse(app)
    saved(app)
    if how == 'stop':
        app.stop()
    else:
        app.kill_all()
    app.start()
    again = chat(app, messages)
    check_reuse(app, again, first)
    app.stop()


def test_conversation_that_others_pushed_out(make):
    """More conversations than slots and pages: the first comes from the store, without any restart."""
    app = make(sets=dict(SETS, **{'engine.slots': 1}))
    messages, first = converse(app)
    saved(app)
    for i in range(2):
        chat(app, [{'role': 'user', 'content': prose(9000, 40000 + 9000 * i)}], 4)
    before = app.metric('vitriol_prefix_restored_tokens_total')
    again = chat(app, messages)
    n = again['usage']['prompt_tokens']
    assert cached(again) >= n - 256, again['usage']
    wait_for('it is told', lambda: app.metric('vitriol_prefix_restored_tokens_total') > before, 10)
    assert again['choices'][0]['message']['content'] == first['choices'][0]['message']['content']
    app.stop()


def test_frozen_store_costs_its_limit_once(make):
    app = make(sets=dict(SETS, **{'store.prefix_wait_ms': 1500}))
    pid = app.child('store')
    os.kill(pid, signal.SIGSTOP)
    try:
        for i in range(3):
            began = time.monotonic()
            chat(app, [{'role': 'user', 'content': prose(1500, 60000 + 3000 * i)}], 1)
            assert time.monotonic() - began < 60
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for('it is told', lambda: app.metric('vitriol_prefix_late_total') == 1, 10)
    time.sleep(1.1)  # what the engine tells once a second
    assert app.metric('vitriol_prefix_late_total') == 1 == app.metric('vitriol_prefix_lookups_total')
    app.stop()


def test_switched_off(make):
    app = make(sets=dict(SETS, **{'store.prefix_wait_ms': 0}))
    messages = [{'role': 'user', 'content': prose(3000, 1000)}]
    first = chat(app, messages)
    saved(app)
    app.kill_all()
    app.start()
    again = chat(app, messages)
    assert cached(again) == 0 and app.metric('vitriol_prefix_lookups_total') == 0
    assert again['choices'][0]['message']['content'] == first['choices'][0]['message']['content']
    app.stop()
