from .core.case import Case as Case
from .core.case import Component as Component
from .core.case import Device as Device
from .core.case import Sample as Sample
from .core.case import Source as Source
from .core.case import TensorSpec as TensorSpec
from .core.case import Variant as Variant
from .core.comparison import Comparison as Comparison
from .core.errors import ParityError as ParityError
from .core.errors import StageError as StageError
from .core.outcome import Outcome as Outcome
from .core.record import CaseRecord as CaseRecord
from .core.runtime import Runtime as Runtime
from .engine.finished_run import Report as Report
from .engine.finished_run import load_report as load_report
from .measure.compare import compare as compare
from .plugins.capture.calls import capture as capture
from .plugins.capture.check import check as check
from .suite.suite import Suite as Suite
from .suite.suite import load_suite as load_suite

__version__: str
