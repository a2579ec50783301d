"""The fixture `parity_check`: `harness.check` in a test, as a part of the run's report.

Every pytest run of the environment imports this module. So it imports the rest only
when a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.plugins.capture.check import CheckVerdict


@pytest.fixture
def parity_check(request: pytest.FixtureRequest) -> Callable[..., CheckVerdict]:
    """Check a module as `harness.check` does, and fail the test if it does not agree.

    The store and the folder of runs are those of pytest's own options. A worker of
    pytest-xdist has no part in the run's report, so its checks make runs of their own.
    """

    def checked(module: Any, inputs: Any = None, **options: Any) -> CheckVerdict:
        __tracebackhide__ = True
        from harness.core.errors import ParityError
        from harness.core.shown import sentence

        why = ""
        try:
            verdict = _checked(request.config, module, inputs, options)
        except ParityError as error:
            why = sentence("parity_check", error)
        if why:  # a traceback into the harness would say nothing about the module
            pytest.fail(why, pytrace=False)
        if not verdict.passed:
            failing = (one for one in verdict.verdicts if not one.outcome.passed)
            text = "\n".join(one.sentence for one in failing) or str(verdict)
            pytest.fail(text, pytrace=False)
        return verdict

    return checked


def _checked(
    config: pytest.Config, module: Any, inputs: Any, options: dict[str, Any]
) -> CheckVerdict:
    from harness.judge.run import exit_code
    from harness.plugins.capture.check import AskedCheck, check

    if hasattr(config, "workerinput"):
        return check(module, inputs, **options)
    asked = AskedCheck.of(module, inputs, **options)
    # The harness's own plugin, which stands above this module, has the session.
    session = config.pluginmanager.getplugin("parity").session_of(config)
    ran = asked.run_in(session.running)
    session.count(ran.asked)
    code = exit_code(ran.verdicts, (), session.running.settings.require)
    return asked.verdict(ran, code)
