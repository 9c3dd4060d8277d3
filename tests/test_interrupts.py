"""Interrupts that wait for the end of a block."""

from __future__ import annotations

import signal
import threading

import pytest

from fa_registry.interrupts import deferred_interrupts


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1"])
def test_the_first_interrupt_waits_for_the_end_of_the_block(usual_interrupt, name):
    number, done = getattr(signal, name), []
    before = signal.signal(number, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(number)
        done.append("all of it")
    assert done and signal.getsignal(number) is signal.default_int_handler
    signal.signal(number, before)


def test_the_second_interrupt_acts_at_once(usual_interrupt):
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("too late")
    assert not done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_outside_the_main_thread_nothing_changes(usual_interrupt):
    handlers = []

    def work():
        with deferred_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
