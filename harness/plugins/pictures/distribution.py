"""A verdict over many pictures, which may be asked for after every picture.

The *ratio* of a picture is its error divided by its limit. The limit is the suite's, or
the error that the model's own bfloat16 or the accepted build has on the same pair of
prompt and seed. A *claim* says which share of all pictures may have a ratio above a
bound. Each claim is tested with a mixture martingale of the binomial distribution
(Robbins 1970, Howard et al. 2021). Its only assumption is that pictures are independent
draws: no normal distribution, no symmetry, no largest error. It stays valid wherever
the drawing stops, so it may stop as soon as the answer is clear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from harness.core.errors import SpecError

ALPHA: Final = 0.05
"""Probability of a wrong SHIP, and of a wrong DO NOT SHIP, at most."""

POWER: Final = 0.9
"""Probability with which the least visible effect is seen."""

_PRIOR: Final = 0.5
"""Both parameters of the beta distribution that weighs the alternatives: Jeffreys'."""

_MOST: Final = 10_000
"""No forecast looks further than this number of pictures."""


ACCEPTED: Final = "the accepted build"
"""The yardstick of a build that is compared with the accepted one."""

READ: Final = "read"
"""Name of the metric of a suite's reader: 1 where it reads another thing, else 0."""


class Conclusion(StrEnum):
    """The answer of a test of a release."""

    SHIP = "SHIP"
    WORSE = "DO NOT SHIP"
    OPEN = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement about all pictures that the pipeline could draw.

    Attributes:
        name: Name of the claim, for messages.
        bound: Ratio above which a picture counts as worse.
        share: Largest share of worse pictures, between 0 and 1.

    """

    name: str
    bound: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            msg = f"The share of {self.name!r} is between 0 and 1, got {self.share:g}."
            raise SpecError(msg)


TYPICAL: Final = Claim(name="typical picture")
BROKEN: Final = Claim(name="worst pictures", bound=4.0, share=0.2)
READ_SHARE: Final = 0.1
"""Largest share of pictures that may be read as another thing, unless the suite states
another share."""

CLAIMS: Final = (TYPICAL, BROKEN)
"""The claims of a metric: at most half of all pictures exceed their limit, and at most
a fifth exceed four times their limit. The first alone would accept a build that breaks
two pictures of five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result of one claim.

    Attributes:
        claim: The claim.
        verdict: Whether it holds, with the error probabilities that were given.
        pictures: Number of pictures after which it was decided, or of all pictures.
        worse: Number of worse pictures among these.
        low: Lower end of the confidence interval of the share of worse pictures.
        high: Upper end of this interval.
        more: Number of further pictures that would decide if the observed share stays;
            0 where it is decided, None where `_MOST` pictures would not decide.
        visible: Least true share of worse pictures that this number of pictures shows
            with a probability of `POWER`; 1 or more where none would have been seen.

    """

    claim: Claim
    verdict: Conclusion
    pictures: int
    worse: int
    low: float
    high: float
    more: int | None
    visible: float


def evidence(pictures: int, worse: int, share: float, *, above: bool) -> float:
    """Return the log of the evidence that the true share is above, or below, `share`.

    The exponential of this number is a nonnegative supermartingale of mean 1 wherever
    the truth is the opposite. By Ville's inequality it ever reaches ``1 / alpha`` with
    a probability of at most alpha. `worse` of the `pictures` were worse.
    """
    if above:  # the same question, asked about the other pictures
        return evidence(pictures, pictures - worse, 1.0 - share, above=False)
    from scipy.special import betainc, betaln

    a, b = _PRIOR + worse, _PRIOR + pictures - worse
    # The alternatives are those below `share` alone: Jeffreys' prior, cut off there.
    if not 0.0 < share < 1.0 or not (below := betainc(a, b, share)):
        return -math.inf
    mixed = betaln(a, b) + math.log(below)
    mixed -= betaln(_PRIOR, _PRIOR) + math.log(betainc(_PRIOR, _PRIOR, share))
    null = worse * math.log(share) + (pictures - worse) * math.log1p(-share)
    return float(mixed - null)


def try_claim(
    claim: Claim, ratios: Sequence[float], *, wrong_alarm: float = ALPHA
) -> Tried:
    """Test a claim on pictures in the order in which they were drawn.

    The first moment at which the evidence suffices decides; later pictures change
    nothing. A ratio is the error over the limit of a picture; NaN counts as worse.
    `wrong_alarm` is the largest probability of DO NOT SHIP although the claim holds.
    """
    enough_bad, enough_good = -math.log(wrong_alarm), -math.log(ALPHA)
    verdict, pictures, worse = Conclusion.OPEN, 0, 0
    for ratio in ratios:
        pictures += 1
        worse += not ratio <= claim.bound
        if evidence(pictures, worse, claim.share, above=True) >= enough_bad:
            verdict = Conclusion.WORSE
        elif evidence(pictures, worse, claim.share, above=False) >= enough_good:
            verdict = Conclusion.SHIP
        if verdict is not Conclusion.OPEN:
            break
    low, high = interval(pictures, worse)
    return Tried(
        claim=claim,
        verdict=verdict,
        pictures=pictures,
        worse=worse,
        low=low,
        high=high,
        more=0
        if verdict is not Conclusion.OPEN
        else _more(claim, pictures, worse, enough_bad, enough_good),
        visible=_visible(claim, pictures, enough_bad),
    )


def claims_of(metrics: Mapping[str, float | None]) -> dict[str, tuple[Claim, ...]]:
    """Return the claims of each metric, by the limit that the suite states, if any."""
    found: dict[str, tuple[Claim, ...]] = dict.fromkeys(metrics, CLAIMS)
    if READ in metrics:
        share = metrics[READ] or READ_SHARE
        found[READ] = (Claim(name="other reading", bound=0.0, share=share),)
    return found


def results_of(pairs: Mapping[str, Any]) -> dict[str, tuple[Tried, ...]]:
    """Return the results of every metric of a pipeline case's pairs, by metric.

    One worse claim is enough for DO NOT SHIP, so the claims share its error
    probability. SHIP takes all of them, and each has the whole error probability.
    """
    claims = claims_of(pairs["margins"])
    wrong_alarm = ALPHA / sum(map(len, claims.values()))
    return {
        metric: tuple(
            try_claim(claim, pair_ratios(pairs, metric), wrong_alarm=wrong_alarm)
            for claim in claims[metric]
        )
        for metric in claims
    }


def pair_ratios(pairs: Mapping[str, Any], metric: str) -> list[float]:
    """Return the ratios of one metric of a pipeline case's pairs.

    Equal pictures have a ratio of 0. A reading is a ratio itself: 0 or 1.
    """
    losses = pairs["losses"][metric]
    if metric == READ:
        return list(losses)
    return [
        (loss / limit if limit else math.inf) if loss else 0.0
        for loss, limit in zip(losses, pairs["limits"][metric], strict=True)
    ]


def worst_of(pairs: Mapping[str, Any]) -> list[int]:
    """Return the places of a pipeline case's pairs, the worst pair first."""
    each = [pair_ratios(pairs, metric) for metric in pairs["losses"]]
    worst = [
        max(math.inf if math.isnan(ratio) else ratio for ratio in row)
        for row in zip(*each, strict=True)
    ]
    return sorted(range(len(worst)), key=lambda place: -worst[place])


def verdict_of(pairs: Mapping[str, Any]) -> Conclusion:
    """Return the decision on a pipeline case's pairs, as far as they were drawn."""
    return decided([one for each in results_of(pairs).values() for one in each])


def pair_words(pairs: Mapping[str, Any]) -> str:
    """Return the decision on a case's pairs, with the claim that decides it."""
    results = results_of(pairs)
    every = [(metric, one) for metric, each in results.items() for one in each]
    verdict = decided([one for _, one in every])
    drawn = len(pairs["seeds"])
    words = [f"{verdict} after {drawn} pictures"]
    # The claim that decides, or that is furthest from a decision.
    shown = [pair for pair in every if pair[1].verdict is verdict]
    metric, one = max(shown, key=lambda pair: (pair[1].low, pair[1].worse))
    words += _claim_words(pairs, metric, one)
    if verdict is Conclusion.OPEN:
        words.append(_more_words([one for _, one in shown]))
    worst = pairs["worst"][0]
    words.append(f"worst: seed {pairs['seeds'][worst]}, {pairs['prompts'][worst]!r}")
    return "; ".join(words)


def all_claims(pairs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a phrase about each claim: verdict, interval and least visible effect."""
    for metric, each in results_of(pairs).items():
        for one in each:
            words = [one.verdict.value, *_claim_words(pairs, metric, one)]
            if one.verdict is Conclusion.OPEN:
                words.append(_more_words([one]))
            yield "; ".join(words)


def _more_words(results: Sequence[Tried]) -> str:
    more = [result.more for result in results]
    if None in more:
        return f"{_MOST:,} more would not decide if their share stays"
    most = max(number or 0 for number in more)
    return f"{most:,} more would decide if their share stays"


def worse_text(pairs: Mapping[str, Any], metric: str, claim: Claim) -> str:
    """Return what makes a picture count as worse, to stand after "pictures are"."""
    other = {"": "their limit", ACCEPTED: ACCEPTED}.get(
        pairs["by"], f"the model's own {pairs['by']}"
    )
    if metric == READ:
        return "read as another thing"
    if claim.bound == 1.0:
        return f"worse than {other} by {metric}"
    return f"over {claim.bound:g} × {other} by {metric}"


def _claim_words(pairs: Mapping[str, Any], metric: str, tried: Tried) -> Iterator[str]:
    yield (
        f"{tried.worse} of {tried.pictures} pictures are "
        f"{worse_text(pairs, metric, tried.claim)}, at most {tried.claim.share:.0%} "
        f"may be; {tried.low:.0%} to {tried.high:.0%} of all pictures"
    )
    if tried.verdict is not Conclusion.WORSE and tried.visible < 1.0:
        yield f"with {tried.visible:.0%} it would be seen nine times in ten"


def decided(results: Sequence[Tried]) -> Conclusion:
    """Return the verdict of several claims: all must hold, and one worse is enough."""
    verdicts = {result.verdict for result in results}
    if Conclusion.WORSE in verdicts:
        return Conclusion.WORSE
    return Conclusion.SHIP if verdicts == {Conclusion.SHIP} else Conclusion.OPEN


def interval(pictures: int, worse: int) -> tuple[float, float]:
    """Return the confidence interval of the share, valid wherever the drawing stops."""
    limit = -math.log(ALPHA / 2)
    at = worse / pictures if pictures else 0.5

    def end(*, above: bool) -> float:
        # The evidence grows monotonically away from the observed share.
        near, far = at, 0.0 if above else 1.0
        for _ in range(40):  # a bisection to 1e-12
            middle = (near + far) / 2
            if evidence(pictures, worse, middle, above=above) < limit:
                near = middle
            else:
                far = middle
        return near

    low = 0.0 if worse == 0 else end(above=True)
    high = 1.0 if worse == pictures else end(above=False)
    return low, high


def least_pictures(claims: Sequence[Claim] = CLAIMS) -> int:
    """Return the number of pictures without which no claim could ever be accepted."""

    def least(claim: Claim) -> int:
        # `evidence` of no worse picture is the mean of (cos x / cos angle)^(2 pictures)
        # for x from 0 to this angle. It is integrated by parts here, because scipy
        # takes half a second to load, and each suite with `seeds` asks.
        angle = math.asin(math.sqrt(claim.share))
        area = angle
        for pictures in range(1, _MOST):
            twice = 2 * pictures
            area *= (twice - 1) / twice / (1.0 - claim.share)
            area += math.tan(angle) / twice
            if area >= angle / ALPHA:
                return pictures
        return _MOST

    return max(least(claim) for claim in claims)


def _more(
    claim: Claim, pictures: int, worse: int, enough_bad: float, enough_good: float
) -> int | None:
    """Return how many more pictures decide if the observed share stays."""
    share = worse / pictures if pictures else _PRIOR
    above = share > claim.share
    enough = enough_bad if above else enough_good

    def is_enough(total: int) -> bool:
        found = min(worse + round(share * (total - pictures)), total)
        return evidence(total, found, claim.share, above=above) >= enough

    low, high = pictures, pictures + 1
    while not is_enough(high):
        low, high = high, high * 2
        if low > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high - pictures


def _visible(claim: Claim, pictures: int, enough: float) -> float:
    """Return the least true share that is called worse with a probability of `POWER`.

    Stopping early can only add to this probability, so the number is an upper bound.
    """
    from scipy.special import betaincinv

    for worse in range(math.floor(claim.share * pictures), pictures + 1):
        if evidence(pictures, worse, claim.share, above=True) >= enough:
            # P(Binomial(n, p) >= worse) is the cdf of this beta distribution at p.
            return float(betaincinv(worse, pictures - worse + 1, POWER))
    return 1.0
