#!/usr/bin/env python3
"""Measures VITRIOL and writes docs/BENCHMARKS.md: bench/run.py [--quick] [--only NAME,...] [--json FILE] [--peer PROGRAM]

Needs a release build and the Python environment of the tests (`./vitriol build`, `./vitriol test lint` makes the latter):
    .venv/bin/python bench/run.py
--peer names the llama-bench of a llama.cpp-family build for the same cores; its runs alternate with ours.
Every figure is taken by this program on this machine; nothing is carried over from another run.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
sys.path.insert(0, os.path.join(TOP, 'tests'))

from harness import stream  # noqa: E402
from harness.appliance import MODEL, Appliance, clean_env, program  # noqa: E402
from harness.text import prose, short  # noqa: E402
from procs import cpu_s, rss_mib  # noqa: E402


def processes(a):
    return dict(a.children(), vitriold=a.pid)


def spread(values):
    v = sorted(values)
    return {'n': len(v), 'median': statistics.median(v), 'min': v[0], 'max': v[-1], 'p90': v[int(0.9 * (len(v) - 1))]}


def bench_resume(o):
    """kill -9 of the engine in the middle of a stream: time until the client's next token."""
    out = {}
    for label, chars in (('short prompt', 0), ('prompt of about 1500 tokens, checkpointed', 6000)):
        times = []
        with Appliance(sets={'engine.ctx_tokens': 4096}) as a:
            for i in range(3 if o.quick else 12):
                a.wait_ready()
                prompt = short(i) if not chars else prose(chars, 7000 * i)
                if chars:
                    a.text(prompt, 1)
                    a.ctl('checkpoint')
                s = a.stream(prompt, 200)
                s.run(until_events=20)
                n, t0 = len(s.times), time.monotonic()
                a.kill('engine0')
                s.run()
                stream.check_transcript(s, ('normal',))
                after = [t - t0 for t in s.times[n:]]
                # tokens that were under way when the engine died still arrive at once; the gap is the resume
                times.append(max((b, i) for i, b in enumerate([y - x for x, y in zip(s.times[n - 1:], s.times[n:])]))[0])
                assert after
                a.ctl('reset', 'engine0', check=False)
        out[label] = spread(times)
    return out


def bench_autosave(o):
    """Bytes the store's process writes for each new token while a long answer is being generated and saved every second."""
    with Appliance(sets={'engine.ctx_tokens': 8192, 'engine.slots': 2}) as a:
        a.text(prose(3000), 1)
        time.sleep(3)
        payload0, store = a.metric('vitriol_ckpt_bytes_written_total'), a.child('store')
        price = a.metric('vitriol_kv_bytes_per_token')
        io0 = proc_io(store)
        n = 1024 if o.quick else 4096
        t0 = time.monotonic()
        r = stream.post(a.port, '/completion', {'prompt': prose(3000), 'n_predict': n, 'temperature': 0, 'ignore_eos': True},
                        timeout=600).json()
        took = time.monotonic() - t0
        time.sleep(4)
        return {'new_tokens': r['tokens_predicted'], 'seconds': took,
                'kv_bytes_per_token': price,
                'payload_bytes_per_token': (a.metric('vitriol_ckpt_bytes_written_total') - payload0) / r['tokens_predicted'],
                'written_bytes_per_token': (proc_io(store) - io0) / r['tokens_predicted']}


def proc_io(pid):
    with open('/proc/%d/io' % pid) as f:
        return int(dict(ln.split(': ') for ln in f)['wchar'])


def bench_cpu(o):
    """CPU time of gateway, vitriold and store for each streamed token."""
    out = {}
    for label, clients in (('one stream', 1), ('eight streams', 8)):
        with Appliance(sets={'engine.ctx_tokens': 4096}) as a:
            n = 500 if o.quick else 2000
            a.text(short(0), 8)
            before = {k: cpu_s(p) for k, p in processes(a).items()}
            t0 = time.monotonic()
            streams = [a.stream(short(i), n, ignore_eos=True) for i in range(clients)]
            import threading
            threads = [threading.Thread(target=s.run) for s in streams]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            took = time.monotonic() - t0
            used = {k: cpu_s(p) - before[k] for k, p in processes(a).items()}
            tokens = n * clients
            out[label] = {'tokens': tokens, 'tokens_per_s': tokens / took,
                          'us_per_token': {k: 1e6 * v / tokens for k, v in used.items()}}
    return out


def bench_memory(o):
    """Resident memory of each process, idle after one answer."""
    with Appliance() as a:
        a.text(short(0), 16)
        time.sleep(2)
        return {k: rss_mib(p) for k, p in processes(a).items()}


def bench_idle(o):
    """CPU of the idle appliance, as a share of one core."""
    with Appliance(sets={'store.autosave_s': 30}) as a:
        a.text(short(0), 16)
        time.sleep(5)
        seconds = 20 if o.quick else 60
        before = {k: cpu_s(p) for k, p in processes(a).items()}
        time.sleep(seconds)
        used = {k: 100 * (cpu_s(p) - before[k]) / seconds for k, p in processes(a).items()}
        return dict(percent_of_a_core=used, total=sum(used.values()), seconds=seconds)


def bench_first_token(o):
    """What the gateway and the links add to the time to the first token: measured at the client, less the engine's own time."""
    with Appliance() as a:
        added = []
        for i in range(20 if o.quick else 100):
            s = a.stream(short(i), 4, path='/completion', n_predict=4)
            s.run()
            last = s.json_events()[-1]
            own = (last['timings']['prompt_ms'] + last['timings']['predicted_ms']) / 1000
            added.append(1000 * (s.times[-1] - s.t0 - own))
        return {'added_ms_four_tokens': spread(added)}


def bench_start(o):
    """From the start of vitriold to /health 200."""
    times = []
    for _ in range(2 if o.quick else 6):
        a = Appliance()
        t0 = time.monotonic()
        with a.start():
            times.append(time.monotonic() - t0)
    return {'seconds': spread(times)}


def models(o, tmp):
    """(label, path) of the embedded models and, in a full run, of synthetic files in the shape of a usual small one."""
    out = [('embedded (lapis-hybrid %s)' % q.upper(), os.path.join(TOP, 'models', 'lapis-hybrid-%s.gguf' % q)) for q in ('q4_k_m', 'q8_0')]
    for q in () if o.quick else ('q4_k_m', 'q8_0'):
        big = os.path.join(tmp, 'qwen3-0.6b-%s.gguf' % q)
        subprocess.check_call([sys.executable, os.path.join(TOP, 'bench', 'synth_gguf.py'), 'qwen3-0.6b', q, big],
                              stdout=subprocess.DEVNULL)
        out.append(('synthetic qwen3-0.6b ' + q.upper(), big))
    return out


def tool_bench(path, *args):
    p = subprocess.run([program('vitriol-tool'), 'bench', '-m', path, '-t', str(os.cpu_count()), '--device', 'cpu', '--json'] + list(args),
                       env=clean_env(), capture_output=True, text=True, check=True)
    return json.loads(p.stdout)


def bench_engine(o):
    """Engine speed by itself, through vitriol-tool bench. Large models get fewer cells and repeats: theirs take minutes."""
    small = (('-n', '128', '-d', '0,2048', '-b', '1,4'),)
    large = (('-n', '32', '-d', '0', '-b', '1,4', '--repeats', '3'), ('-n', '32', '-d', '2048', '-b', '1', '--repeats', '3'))
    out = {}
    with tempfile.TemporaryDirectory(prefix='vtbench') as tmp:
        for label, path in models(o, tmp):
            cells = large if os.path.getsize(path) > 100 << 20 else small
            out[label] = {'results': [x for c in cells for x in tool_bench(path, '-p', '512', *c)['results']]}
    return out


PEER_DEPTH = 2048


def ours_once(path):
    """Tokens per second of one round: prefill of 512, decode at depth 0 and deeper."""
    args = ('-p', '512', '-n', '64', '-b', '1', '--repeats', '1', '-d')
    flat, deep = [tool_bench(path, *args, d)['results'][0] for d in ('0', str(PEER_DEPTH - 512))]
    return {'prefill': flat['prefill_tokens_per_s']['median'], 'decode': flat['decode_tokens_per_s']['median'],
            'decode at depth %d' % PEER_DEPTH: deep['decode_tokens_per_s']['median']}


def peer_once(o, path):
    p = subprocess.run([o.peer, '-m', path, '-p', '512', '-n', '64', '-gp', '%d,64' % PEER_DEPTH, '-t', str(os.cpu_count()),
                        '-r', '1', '-o', 'json'], capture_output=True, text=True, check=True)
    found = {}
    for t in json.loads(p.stdout):
        kind = 'decode at depth %d' % PEER_DEPTH if t['n_prompt'] and t['n_gen'] else 'prefill' if t['n_prompt'] else 'decode'
        found[kind] = t['avg_ts']
    return found


def bench_peer(o):
    """The same file, cores and lengths with another engine, round by round in turn; ratios are ours to theirs."""
    out = {}
    with tempfile.TemporaryDirectory(prefix='vtbench') as tmp:
        for label, path in models(o, tmp):
            rounds = []
            for i in range(2 if o.quick else o.rounds):  # who goes first changes from round to round
                theirs = peer_once(o, path) if i % 2 else None
                ours = ours_once(path)
                rounds.append((ours, theirs or peer_once(o, path)))
            out[label] = {k: {'ours': statistics.median(a[k] for a, _ in rounds), 'theirs': statistics.median(b[k] for _, b in rounds),
                              'ratio': statistics.median(a[k] / b[k] for a, b in rounds), 'rounds': len(rounds)}
                          for k in rounds[0][0]}
    return out


def bench_spec(o):
    """Guessed tokens (engine.spec = ngram) beside none, the requests alternating: a text that repeats itself, and drawn ones."""
    line = 'for (i = 0; i < n; i++) sum += value[i] * weight[i];\n'
    kinds = {'copies (greedy, after %d equal lines)' % 24: dict(prompt=line * 24, temperature=0),
             'novel (drawn at temperature 1)': dict(prompt=prose(3, 300), temperature=1, top_k=0, top_p=1, min_p=0)}
    sets = {'engine.slots': 1, 'engine.device': 'cpu', 'engine.threads': 1}
    out = {}
    with Appliance(sets=sets).start() as off, \
            Appliance(sets=dict(sets, **{'engine.spec': 'ngram'}), options=['--unblessed']).start() as on:
        for kind, how in kinds.items():
            rate, same, drafted, accepted = {'off': [], 'on': []}, True, 0, 0
            for i in range(5 if o.quick else 15):
                texts = []
                for name, a in (('off', off), ('on', on)):
                    body = dict(how, n_predict=200, seed=i + 1, ignore_eos=True)
                    answer = stream.post(a.port, '/completion', body).json()
                    t = answer['timings']
                    rate[name].append(t['predicted_per_second'])
                    drafted += t.get('draft_n', 0)
                    accepted += t.get('draft_n_accepted', 0)
                    texts.append(answer['content'])
                same = same and texts[0] == texts[1]
            out[kind] = dict(off=spread(rate['off']), on=spread(rate['on']), same=same, drafted=drafted, accepted=accepted)
    return out


def bench_mask(o):
    """A grammar's masks over a vocabulary: --vocab, or the embedded model's."""
    p = subprocess.run([program('bench_mask'), o.vocab or MODEL, os.path.join(TOP, 'bench', 'mask_schema.json'), '3' if o.quick else '10'],
                       capture_output=True, text=True, check=True)
    out = {'tokens': int(p.stdout.split()[0]), 'trie_ms': float(re.search(r'trie made in ([0-9.]+)', p.stdout)[1]), 'rows': {}}
    for m in re.finditer(r'^(.+?) {2,}(\d+) +mean +([0-9.]+) +median +([0-9.]+) +99 % +([0-9.]+)', p.stdout, re.M):
        out['rows'][m[1]] = {'n': int(m[2]), 'mean': float(m[3]), 'median': float(m[4]), 'p99': float(m[5])}
    return out


BENCHES = {'engine': bench_engine, 'peer': bench_peer, 'start': bench_start, 'resume': bench_resume, 'autosave': bench_autosave, 'cpu': bench_cpu,
           'first_token': bench_first_token, 'memory': bench_memory, 'idle': bench_idle, 'mask': bench_mask, 'spec': bench_spec}


def machine():
    with open('/proc/cpuinfo') as f:
        model = next((ln.split(':', 1)[1].strip() for ln in f if ln.startswith('model name')), platform.machine())
    with open('/proc/meminfo') as f:
        mem = int(f.readline().split()[1]) / 1048576
    return '%s, %d cores used, %.0f GiB, Linux %s' % (model, os.cpu_count(), mem, platform.release())


def ms(v):
    return '%.0f ms' % (1000 * v)


def render(r):
    o = ['# Benchmarks', '', 'Written by `bench/run.py`; every figure was taken in one run on one machine. '
         "A GPU's figures, beside a peer's, are in [GPU.md](GPU.md), those of runs with faults in "
         '[DURABILITY.md](DURABILITY.md).', '',
         '- machine: ' + r['machine'], '- build: ' + r['build'], '- date: ' + r['date'],
         '- load average at the start: ' + r['load'] + (' (other work ran beside it: read these figures as upper bounds of time)'
                                                      if float(r['load'].split()[0]) > 1 else ''), '']
    if 'engine' in r:
        o += ['## Engine', '', '`vitriol-tool bench -p 512 -n 128 -d 0,2048 -b 1,4 -t CORES` (`-n 32` for files over 100 MiB): medians over repeats, tokens per second,'
              ' all sequences together; depth is what is already in the window.', '',
              '| model | depth | sequences | prefill | decode |', '| --- | ---: | ---: | ---: | ---: |']
        for label, res in r['engine'].items():
            for x in res['results']:
                o.append('| %s | %d | %d | %.0f | %.1f |' % (label, x['depth'], x['batch'], x['prefill_tokens_per_s']['median'],
                                                                    x['decode_tokens_per_s']['median']))
        o.append('')
    if 'peer' in r:
        o += ['## Beside a peer', '', 'The `llama-bench` of %s on the same file and cores (`-p 512 -n 64 -gp 2048,64`, its own defaults'
              ' otherwise). One run each in turn, the first of a round changing; medians of tokens per second and of the ratios within'
              ' a round. Prefill of 512 tokens at depth 0; decode of 64, one sequence.'
              % r['peer_name'], '', '| model | | ours | peer | ratio | rounds |', '| --- | --- | ---: | ---: | ---: | ---: |']
        for label, x in r['peer'].items():
            for k in x:
                o.append('| %s | %s | %.1f | %.1f | %.2f | %d |' % (label, k, x[k]['ours'], x[k]['theirs'], x[k]['ratio'], x[k]['rounds']))
        o.append('')
    if 'start' in r:
        o += ['## Start', '', 'Start of vitriold to `/health` 200: median %s (%d starts, slowest %s).' % (
            ms(r['start']['seconds']['median']), r['start']['seconds']['n'], ms(r['start']['seconds']['max'])), '']
    if 'resume' in r:
        o += ['## Resume after kill -9', '', 'The engine is killed in the middle of a stream; the time is the longest gap between two'
              ' tokens that the client sees. It contains the first backoff, 0.2 s for an engine that was ready for 2 s (± 20 %).', '', '| prompt | median | 90 % | worst | kills |',
              '| --- | ---: | ---: | ---: | ---: |']
        for label, x in r['resume'].items():
            o.append('| %s | %s | %s | %s | %d |' % (label, ms(x['median']), ms(x['p90']), ms(x['max']), x['n']))
        o.append('')
    if 'autosave' in r:
        x = r['autosave']
        o += ['## Autosave', '', 'One answer of %d tokens with a save every second. KV costs %.0f bytes a token; the engine handed over'
              ' %.0f bytes a token (recurrent snapshots included), the store process wrote %.0f (its `wchar`).' % (
                  x['new_tokens'], x['kv_bytes_per_token'], x['payload_bytes_per_token'], x['written_bytes_per_token']), '']
    if 'cpu' in r:
        o += ['## CPU time for each streamed token', '', 'Time on a core as the scheduler counts it, all threads.', '',
              '| clients | tokens/s | gateway | vitriold | store | engine |', '| --- | ---: | ---: | ---: | ---: | ---: |']
        for label, x in r['cpu'].items():
            u = x['us_per_token']
            o.append('| %s | %.0f | %.0f µs | %.0f µs | %.0f µs | %.0f µs |' % (label, x['tokens_per_s'], u['gateway'], u['vitriold'],
                                                                             u['store'], u['engine0']))
        o.append('')
    if 'first_token' in r:
        x = r['first_token']['added_ms_four_tokens']
        o += ['## Added latency', '', 'Answers of four tokens: time at the client less the engine\'s own prompt and decode time, which is'
              ' what HTTP, gateway and links add in all: median %.1f ms, 90 %% %.1f ms (%d requests).' % (x['median'], x['p90'], x['n']), '']
    if 'memory' in r:
        o += ['## Resident memory', '', 'Idle after one answer, MiB.', '', '| process | resident | anonymous | file | shared |',
              '| --- | ---: | ---: | ---: | ---: |']
        for k, x in sorted(r['memory'].items()):
            o.append('| %s | %.1f | %.1f | %.1f | %.1f |' % (k, x['VmRSS'], x['RssAnon'], x['RssFile'], x['RssShmem']))
        o.append('')
    if 'idle' in r:
        x = r['idle']
        o += ['## Idle', '', 'Over %d s without a client: %.2f %% of one core in all (%s).' % (x['seconds'], x['total'], ', '.join(
            '%s %.2f %%' % kv for kv in sorted(x['percent_of_a_core'].items()))), '']
    if 'mask' in r:
        x = r['mask']
        o += ['## Masks of a grammar', '', 'Random texts under `bench/mask_schema.json` over a vocabulary of %d tokens (its trie is made'
              ' in %.0f ms, once a load); µs for each token.' % (x['tokens'], x['trie_ms']), '', '| | times | mean | median | 99 % |',
              '| --- | ---: | ---: | ---: | ---: |']
        o += ['| %s | %d | %.2f | %.2f | %.2f |' % (k, v['n'], v['mean'], v['median'], v['p99']) for k, v in x['rows'].items()]
        o.append('')
    if 'spec' in r:
        o += ['## Guessed tokens', '', 'The embedded model on one thread, 200 tokens an answer, with `engine.spec = ngram` beside'
              ' `none`, requests alternating between two appliances of one run; tokens a second of the decode alone, medians.', '',
              '| text | none | ngram | ratio | guessed | right | same text |', '| --- | ---: | ---: | ---: | ---: | ---: | --- |']
        o += ['| %s | %.0f | %.0f | %.2f | %d | %d | %s |' % (k, v['off']['median'], v['on']['median'], v['on']['median'] / v['off']['median'],
              v['drafted'], v['accepted'], 'yes' if v['same'] else 'NO') for k, v in r['spec'].items()]
        o.append('')
    return '\n'.join(o)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--quick', action='store_true', help='few repeats, embedded model only')
    ap.add_argument('--only', default=','.join(BENCHES))
    ap.add_argument('--peer', help='a llama-bench program to run beside ours')
    ap.add_argument('--peer-name', default='a llama.cpp-family build', help='what the page calls it')
    ap.add_argument('--rounds', type=int, default=5, help='of the peer, each engine once in a round')
    ap.add_argument('--vocab', help='a model file whose vocabulary the masks of a grammar are made for')
    ap.add_argument('--json', help='write the raw figures here')
    ap.add_argument('--out', default=os.path.join(TOP, 'docs', 'BENCHMARKS.md'))
    o = ap.parse_args()
    with open('/proc/loadavg') as f:
        load = ' '.join(f.read().split()[:3])
    r = {'machine': machine(), 'load': load, 'date': time.strftime('%Y-%m-%d'),
         'build': subprocess.check_output([program('vitriold'), '--version'], text=True).strip()}
    r['peer_name'] = o.peer_name
    for name in o.only.split(','):
        if name == 'peer' and not o.peer:
            continue
        print(name, '...', flush=True)
        r[name] = BENCHES[name](o)
        print(json.dumps(r[name], indent=1), flush=True)
    if o.json:
        with open(o.json, 'w') as f:
            json.dump(r, f, indent=1)
    with open(o.out, 'w') as f:
        f.write(render(r))
    print('wrote', o.out)


if __name__ == '__main__':
    main()
