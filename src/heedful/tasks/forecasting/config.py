"""[task] of forecasting: the window, its tokens, and what is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from heedful.config.base import Probability, Problem, Size, SmallCount, refuse, unused
from heedful.models.family import Architecture
from heedful.nn.model import EncoderModel
from heedful.tasks.base import TaskConfig
from heedful.tasks.forecasting.calendar import CovariateName
from heedful.tasks.forecasting.forms import FORMS, FormName
from heedful.tasks.forecasting.model import MEDIAN, ForecastingModel, NormalizationName
from heedful.training.train_state import Direction

Quantile = Annotated[float, Field(gt=0.0, lt=1.0)]


class ForecastingConfig(TaskConfig):
    unit: ClassVar[str] = "examples"
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder",)
    name: Literal["forecasting"]
    """Task."""
    variables: tuple[str, ...] | Literal["auto"] = "auto"
    """Columns to read and to forecast; auto: all columns but the time."""
    look_back: Size = 336
    """Steps of the window that a forecast is made from."""
    horizon: Size = 96
    """Steps to forecast."""
    form: FormName = "encoder"
    """How the horizon is predicted: encoder: all at once from the states of an encoder; decoder: patch after patch by a causal
    model; encoder-decoder: by queries that attend to the encoded window."""
    decoder_layers: SmallCount = 2
    """Encoder-decoder: layers of the decoder, with the sizes of the encoder."""
    patch: Size = 16
    """Steps of a patch, which is one token; 1: every step is a token."""
    stride: Size = 8
    """Steps between the beginnings of patches."""
    channels: Literal["independent", "joint"] = "independent"
    """Whether each variable is a sequence of its own, with the same weights, or a patch has all variables."""
    covariates: tuple[CovariateName, ...] = ()
    """Calendar features of the time of each patch, which are added to its vector."""
    normalization: NormalizationName = "standard"
    """What is subtracted from each window, and added to the forecast: nothing, its last value, its mean; standard: the mean,
    and the window is divided by its standard deviation."""
    linear: Literal["none", "learned", "ridge"] = "none"
    """A linear map of the window that is added to the forecast of the model; ridge: fitted in closed form and kept."""
    quantiles: tuple[Quantile, ...] = ()
    """Quantiles to forecast, with 0.5; none: the mean."""
    season: Size | None = None
    """Steps of a season, for the seasonal naive baseline; default: a day, or a week where a step is a day."""
    head_dropout: Probability = 0.1
    """Dropout before the output layer."""

    def model_post_init(self, context: Any) -> None:
        problems = []
        if self.variables != "auto" and (not self.variables or len(set(self.variables)) != len(self.variables)):
            problems.append(Problem("variables", f"given {list(self.variables)!r}, expected one or more that differ"))
        if self.patch > self.look_back:
            problems.append(Problem("patch", f"given {self.patch}, expected at most look_back = {self.look_back}"))
        elif self.form == "decoder" and (self.stride != self.patch or self.look_back % self.patch):
            given = f"given {self.stride}, expected patch = {self.patch}, a divisor of look_back = {self.look_back}, since"
            problems.append(Problem("stride", f"{given} the forecasts of form 'decoder' are its next patches"))
        elif (self.look_back - self.patch) % self.stride:
            given = f"given {self.stride}, expected a divisor of look_back - patch = {self.look_back - self.patch}"
            problems.append(Problem("stride", given))
        if self.quantiles and (MEDIAN not in self.quantiles or list(self.quantiles) != sorted(set(self.quantiles))):
            problems.append(Problem("quantiles", f"given {list(self.quantiles)!r}, expected increasing ones with 0.5"))
        if self.linear == "ridge" and self.normalization != "last":
            given = f"given 'ridge', which is fitted with normalization 'last', but normalization is {self.normalization!r}"
            problems.append(Problem("linear", given))
        if self.form != "encoder-decoder":
            problems += unused(self, {"decoder_layers": f"form {self.form!r} has no separate decoder"})
        refuse(problems)

    @property
    def known_variables(self) -> tuple[str, ...]:
        """The variables; one as long as they are not read from the data."""
        return ("",) if self.variables == "auto" else self.variables

    @property
    def patches(self) -> int:
        return (self.look_back - self.patch) // self.stride + 1

    @property
    def future_patches(self) -> int:
        """Patches of the horizon; the last one may be longer than the rest of it."""
        return -(-self.horizon // self.patch)

    @property
    def positions(self) -> int:
        """Maximum number of tokens that the model reads."""
        return self.patches + (self.future_patches - 1 if self.form == "decoder" else 0)

    @property
    def features(self) -> int:
        """Size of the vector of a patch; of several variables, as soon as they are known."""
        together = len(self.known_variables) if self.channels == "joint" else 1
        return self.patch * together + 2 * len(self.covariates)

    @property
    def interval(self) -> float | None:
        """Probability of the interval between the lowest and the highest quantile; None: there is none."""
        return self.quantiles[-1] - self.quantiles[0] if len(self.quantiles) > 1 else None

    @property
    def metrics(self) -> Mapping[str, Direction]:
        figures: dict[str, Direction] = {"loss": "lower", "mse": "lower", "mae": "lower"}
        return figures | ({"coverage_error": "lower"} if self.interval is not None else {})

    def add_head(self, model: EncoderModel, dim: int) -> ForecastingModel:
        return FORMS[self.form](model, dim, self)

    def problems_with(self, run: Any) -> list[Problem]:
        problems, expected = [], self.features
        unknown = self.channels == "joint" and self.variables == "auto"
        given: int = run.model.numeric_inputs
        if given != expected and not (unknown and given and (given - 2 * len(self.covariates)) % self.patch == 0):
            variables = " with all variables" if self.channels == "joint" else ""
            terms = f"the size of a patch{variables} and two numbers for each of task.covariates"
            what = terms if unknown else f"{expected}, {terms}"
            shown = f"given {given}" if given else "missing"
            problems.append(Problem("model.features", f"{shown}; expected {what}, an option of family 'encoder'"))
        limit = run.model.max_positions if getattr(run.model, "position", "none") == "learned" else self.positions
        if limit < self.positions:
            problems.append(Problem("model.max_positions", f"given {limit}, expected at least {self.positions}, the patches"))
        if self.form == "decoder" and not getattr(run.model, "causal", False):
            problems.append(Problem("model.causal", "missing; expected true, since task.form is 'decoder'"))
        if self.covariates and run.data.time is None:
            problems.append(Problem("task.covariates", "given without data.time, the column of the time"))
        return problems
