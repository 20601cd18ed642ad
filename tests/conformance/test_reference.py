"""The server bills every request as a naive reading of the documentation does."""

import attrs
import pytest
from hypothesis import HealthCheck, given, settings

from coterie.agents.models import load_models
from coterie.scenarios.server.cache import PromptCache, Verdict
from coterie.scenarios.server.call import Caller, parse_call
from coterie.scenarios.server.markers import find_markers
from coterie.scenarios.server.prompt import build_prompt
from tests.conformance.histories import STEPS, Begin, Event, History, Send, Step, Wait
from tests.conformance.reference import Begun, Bill, ReferenceCache

TABLE = load_models()


@attrs.define(eq=False)
class Pure:
    """The server's own code without its HTTP, beside the reference."""

    now: float = 1_000.0
    cache: PromptCache = attrs.field(factory=PromptCache)
    reference: ReferenceCache = attrs.field(factory=ReferenceCache)
    held: list[tuple[Verdict, Begun]] = attrs.field(factory=list)

    def act(self, event: Event) -> None:
        match event:
            case Wait(seconds=seconds):
                self.now += seconds
            case Begin():
                self._publish(*self.held.pop(0))
            case Send(body=body, key=key, is_held=is_held):
                verdict, begun = self._look_up(body, key), self.reference.begin(body, key, self.now)
                assert billed(verdict) == begun.bill
                if is_held:
                    self.held.append((verdict, begun))
                else:
                    self._publish(verdict, begun)

    def _look_up(self, body: bytes, key: str) -> Verdict:
        call = parse_call(body, Caller(key=key), TABLE)
        prompt = build_prompt(call)
        markers = find_markers(call, prompt)
        return self.cache.look_up(prompt, markers, minimum=call.model.cache_minimum, now=self.now)

    def _publish(self, verdict: Verdict, begun: Begun) -> None:
        self.cache.publish(verdict)
        self.reference.publish(begun)


def billed(verdict: Verdict) -> Bill:
    return Bill(read=verdict.read, write_5m=verdict.write_5m, write_1h=verdict.write_1h, uncached=verdict.uncached)


def check_history(steps: list[Step]) -> None:
    pure = Pure()
    for event in History().events(steps):
        pure.act(event)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_is_billed_as_the_reference_does(steps: list[Step]) -> None:
    check_history(steps)
