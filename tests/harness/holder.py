"""Stands in for systemd: holds the HTTP socket over restarts of vitriold (LISTEN_FDS) and starts it again after 2 s.

    holder.py PORT PIDFILE -- COMMAND...

The running command's pid is in PIDFILE. SIGTERM is passed on and ends the holder with the command's exit code, as do
exit 0 and the codes that the unit does not restart (64, 77, 78).
"""
import os
import signal
import socket
import sys
import time


def spawn(sock, pidfile, argv):
    pid = os.fork()
    if pid == 0:
        if sock.fileno() != 3:
            os.dup2(sock.fileno(), 3)
        os.set_inheritable(3, True)
        env = dict(os.environ, LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES='http')
        os.execve(argv[0], argv, env)
    with open(pidfile + '.new', 'w') as f:
        f.write('%d' % pid)
    os.rename(pidfile + '.new', pidfile)
    return pid


def main():
    port, pidfile, argv = int(sys.argv[1]), sys.argv[2], sys.argv[4:]
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(('127.0.0.1', port))
    sock.listen(512)
    stopping = []
    pid = spawn(sock, pidfile, argv)
    signal.signal(signal.SIGTERM, lambda *_: (stopping.append(1), os.kill(pid, signal.SIGTERM)))
    while True:
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if stopping or code in (0, 64, 77, 78):
            sys.exit(code if code >= 0 else 128 - code)
        time.sleep(2)
        pid = spawn(sock, pidfile, argv)


main()
