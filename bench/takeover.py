#!/usr/bin/env python3
"""How long a stream waits when its engine dies: from the kill to the next token, with the parts that the next engine tells of.

    takeover.py MODEL.gguf [--device gpu:0] [--depth 8000] [--rounds 3] [--build build]

For every fault (SIGKILL; with vitriol-engine-fault also an illegal access) with a vault and without one. A prompt of random ids is
evaluated, the stream is in the middle of its answer when the fault comes, and the longest pause from there on is the row's figure.
"""
import argparse
import os
import random
import statistics
import sys
import tempfile
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
sys.path.insert(0, os.path.join(TOP, 'tests'))


def pause_after(times, t0):
    """The longest time without a token from t0 on."""
    at = [t0] + [t for t in times if t > t0]
    return max(b - a for a, b in zip(at, at[1:]))


def one(app, fault, prompt, tokens):
    from harness import gpu
    loads = len(gpu.loads(app))
    s = app.stream(prompt, tokens, ignore_eos=True, timeout=300)
    s.run(until_events=20)
    t0 = s.times[-1]
    if fault == 'kill':
        app.kill('engine0')
        t0 = time.monotonic()
    s.run()
    load = gpu.wait_for('the next load', lambda: gpu.loads(app)[loads:] or None, 60)[-1]
    return pause_after(s.times, t0), load


def rounds(opt, fault, vault):
    from harness import gpu
    from harness.appliance import Appliance, program
    sets = {'engine.device': opt.device, 'engine.ctx_tokens': (opt.depth + 2048) // 256 * 256, 'engine.slots': 2,
            'engine.ubatch_tokens': 1024, 'engine.vault': 'on' if vault else 'off', 'store.quota_mib': 60000,
            'store.max_mib_per_hour': 1000000, 'engine.hang_budget_s': 5}
    out = []
    for i in range(opt.rounds):
        with tempfile.TemporaryDirectory() as folder:
            more = {}
            if fault != 'kill':
                # steps: the prompt's chunks, and then a token each
                more = dict(gpu.fault(folder, fault, opt.depth // 1024 + 120), **{'engine.program': program('vitriol-engine-fault')})
            app = Appliance(sets=dict(sets, **more), model=os.path.realpath(opt.model))
            try:
                app.start()
            except AssertionError:
                print(app.log_text()[-5000:])
                app.destroy()
                raise
            with app:
                ids = [random.Random(i).randrange(300, 90000) for _ in range(opt.depth)]
                time.sleep(3)  # a generation that has served is started again at once
                if fault == 'kill':
                    app.completion(ids[:64], 4)
                    time.sleep(2.5)
                out.append(one(app, fault, ids, 600))
                if opt.verbose:
                    print(app.log_text()[-4000:])
    pauses = [p for p, _ in out]
    load = out[-1][1]
    print('| %s | %s | %.0f | %s | %d | %d | %d | %d (%s) | %d (%d pages) |' % (
        fault, 'yes' if vault else 'no', statistics.median(pauses) * 1e3, ' '.join('%.0f' % (p * 1e3) for p in pauses),
        load.process, load.model, load.device, load.weights, 'kept' if load.kept else 'loaded', load.kv, load.pages), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model')
    p.add_argument('--device', default='gpu:0')
    p.add_argument('--depth', type=int, default=8000)
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--faults', default='kill')
    p.add_argument('--vaults', default='yes,no')
    p.add_argument('--verbose', action='store_true')
    opt = p.parse_args()
    print('| fault | vault | pause ms, median | all | process | file and device | rest of device | weights | KV |\n|---|---|---|---|---|---|---|---|---|')
    for fault in opt.faults.split(','):
        for vault in opt.vaults.split(','):
            rounds(opt, fault, vault == 'yes')


main()
