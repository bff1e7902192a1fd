#!/usr/bin/env python3
"""Four processes meet at a barrier made of System V semaphores, again and again, through the C library's own functions.

  python3 examples/barrier.py                                  on the kernel's semaphores
  cargo run --release -- run -- python3 examples/barrier.py    on Manyway's, unchanged
"""

import ctypes
import mmap
import os
import re
import sys
import time

PROCESSES, ROUNDS = 4, 5000
IPC_PRIVATE, IPC_CREAT, IPC_RMID, GETALL, SETALL = 0, 0o1000, 0, 13, 17
libc = ctypes.CDLL(None, use_errno=True)


class Sembuf(ctypes.Structure):
    _fields_ = [("num", ctypes.c_ushort), ("op", ctypes.c_short), ("flg", ctypes.c_short)]


def checked(call, result):
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")
    return result


def semop(sems, *operations):
    """All of the operations (semaphore, number), or none of them yet."""
    array = (Sembuf * len(operations))(*(Sembuf(num, op, 0) for num, op in operations))
    checked("semop", libc.semop(sems, array, len(operations)))


def worker(me, sems, board):
    """Each round: write the round's number on the board, meet the others, and see that all have written it."""
    wrong = 0
    for number in range(1, ROUNDS + 1):
        board[me] = number
        # Three semaphores take turns. This round's counts those who are still to come; the next round's is wound up meanwhile, which
        # nobody can be waiting at any more; somebody may still be leaving the one of the round before.
        semop(sems, (number % 3, -1), ((number + 1) % 3, 1))
        semop(sems, (number % 3, 0))
        wrong += any(seen < number for seen in board)
    os._exit(min(wrong, 100))


def main():
    sems = checked("semget", libc.semget(IPC_PRIVATE, 3, IPC_CREAT | 0o600))
    checked("semctl", libc.semctl(sems, 0, SETALL, (ctypes.c_ushort * 3)(0, PROCESSES, 0)))
    board = (ctypes.c_int * PROCESSES).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    began = time.monotonic()
    children = []
    for me in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            worker(me, sems, board)
        children.append(pid)
    wrong = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children)
    each = (time.monotonic() - began) / ROUNDS * 1e6

    values = (ctypes.c_ushort * 3)()
    checked("semctl", libc.semctl(sems, 0, GETALL, values))
    checked("semctl", libc.semctl(sems, 0, IPC_RMID))
    with open("/proc/self/maps") as maps:
        arena = re.search(r"/\S*arena-v\d+$", maps.read(), re.MULTILINE)

    print("semaphores: ", f"Manyway ({arena.group()})" if arena else "the kernel's")
    print(f"{PROCESSES} processes met {ROUNDS} times, {each:.1f} us each; {wrong} of them saw one that was late")
    print("values at the end:", *values)
    return 0 if wrong == 0 and sorted(values) == [0, 0, PROCESSES] else 1


if __name__ == "__main__":
    sys.exit(main())
