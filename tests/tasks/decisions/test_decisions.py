"""Decisions: the sequence of returns, states and actions, windows of episodes, roll-outs and the predictor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_tasks import write_tiny_recipe
from workshop import heed

import heedful
from heedful.config.toml import write_toml
from heedful.data.gridworld import make_world
from heedful.errors import ConfigError, DataError
from heedful.models.gpt import GPT, GPTConfig
from heedful.runs.config import read_run
from heedful.tasks.decisions.config import DecisionsConfig
from heedful.tasks.decisions.data import DecisionData, EncodedEpisodes, TrajectoryBatch
from heedful.tasks.decisions.model import PADDING, DecisionModel, action_losses
from heedful.tasks.decisions.rollout import Reached, RolloutReport, roll_out

ROWS, TIME, FEATURES, ACTIONS = 3, 5, 4, 3


def make_model(**options: Any) -> DecisionModel:
    given = {"name": "decisions", "actions": ("a", "b", "c"), "features": tuple("wxyz")}
    torch.manual_seed(0)
    body = GPT(GPTConfig(dim=16, layers=2, heads=2, inputs="vectors", position="none", dropout=0.0), 1, 1)
    return DecisionModel(body, 16, DecisionsConfig.model_validate(given | options)).eval()


def make_batch() -> TrajectoryBatch:
    torch.manual_seed(1)
    actions = torch.randint(ACTIONS, (ROWS, TIME))
    return TrajectoryBatch(
        torch.randn(ROWS, TIME), torch.randn(ROWS, TIME, FEATURES), actions, torch.arange(TIME).expand(ROWS, -1)
    )


@pytest.mark.parametrize("condition", ["return", "none"])
def test_an_action_depends_on_what_was_before_it_and_on_nothing_after(condition: str) -> None:
    """The Jacobian of the logits of a step is zero for all later returns and states, and for its own and later actions."""
    model, (returns, states, actions, steps) = make_model(condition=condition), make_batch()
    returns.requires_grad_()
    states.requires_grad_()
    for at in range(TIME):
        logits = model(returns, states, actions, steps)[:, at]
        found = torch.autograd.grad(logits.square().sum(), (returns, states), allow_unused=True)
        reached = found[1].abs().sum(-1)
        assert bool((reached[:, : at + 1] > 0).all()) and not bool(reached[:, at + 1 :].any())
        if condition == "return":
            assert bool((found[0][:, : at + 1] != 0).all()) and not bool(found[0][:, at + 1 :].any())
        else:
            assert found[0] is None
        others = actions.clone()
        others[:, at:] = (others[:, at:] + 1) % ACTIONS
        assert torch.equal(
            model(returns, states, others, steps)[:, : at + 1], model(returns, states, actions, steps)[:, : at + 1]
        )
        if at:
            others[:, at - 1] = (others[:, at - 1] + 1) % ACTIONS
            assert not torch.allclose(model(returns, states, others, steps)[:, at], logits)


def test_every_weight_is_trained() -> None:
    for condition in ("return", "none"):
        model, batch = make_model(condition=condition), make_batch()
        action_losses(model(*batch), batch.actions).sum().backward()  # type: ignore[no-untyped-call]
        # a layer that reads a source is not used, as there is none
        assert [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()] == []


def encoded(lengths: list[int]) -> EncodedEpisodes:
    torch.manual_seed(2)
    steps = sum(lengths)
    return EncodedEpisodes(torch.randn(steps), torch.randn(steps, FEATURES), torch.randint(ACTIONS, (steps,)), lengths)


def test_neither_padding_nor_other_episodes_change_a_prediction() -> None:
    model, episodes = make_model(), encoded([2, 7, 4])
    windows = episodes.windows(7)
    padded = model(*episodes.batch(windows, multiple=16))
    for row, window in enumerate(windows):
        alone = model(*episodes.batch([window]))
        assert torch.allclose(alone[0], padded[row, : window.size], atol=1e-6)
    batch = episodes.batch(windows, multiple=16)
    assert batch.actions.shape == (3, 16) and (batch.actions != PADDING).sum(1).tolist() == [2, 7, 4]
    losses = action_losses(padded, batch.actions)
    assert not losses[batch.actions == PADDING].any() and bool((losses[batch.actions != PADDING] > 0).all())


def test_windows_have_every_step_once_and_are_a_function_of_seed_and_epoch() -> None:
    episodes = encoded([3, 25, 10, 1, *[11] * 9])
    plans = [episodes.windows(10, seed=seed, epoch=epoch) for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert plans[0] == plans[1] and plans[0] != plans[2] != plans[3] != plans[0]
    numbers = [*range(3), *range(25), *range(10), 0, *[*range(11)] * 9]
    for plan in [*plans, episodes.windows(10)]:
        assert [window.first + at for window in plan for at in range(window.size)] == list(range(138))
        assert [window.step + at for window in plan for at in range(window.size)] == numbers
        assert max(window.size for window in plan) <= 10
    assert [window.size for window in episodes.windows(10)] == [3, 10, 10, 5, 10, 1, *[10, 1] * 9]


def test_standardizing_uses_numbers_and_leaves_names() -> None:
    model, episodes = make_model(), encoded([9])
    model.fit(5 + 3 * episodes.returns, 7 * episodes.states, torch.tensor([True, False, True, False]))
    assert model.return_scale.tolist() == pytest.approx(
        [float((5 + 3 * episodes.returns).mean()), float(3 * episodes.returns.std(correction=0))], rel=1e-4
    )
    assert model.state_scale[:, 1].tolist() == model.state_scale[:, 3].tolist() == [0.0, 1.0]
    assert model.state_scale[1, 0] == pytest.approx(float(7 * episodes.states[:, 0].std(correction=0)), rel=1e-4)


def test_returns_are_standardized_by_those_of_the_training_data(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("decisions", tmp_path)
    data = 'data={form="trajectories", builtin="gridworld", counts={train=12, valid=8, test=8}}'
    assert heed("train", recipe, data, "training.steps=2", "--run", tmp_path / "run") == 0
    maker = heedful.DecisionMaker.load(tmp_path / "run")
    train, valid = (maker.split_episodes(split).returns.double() for split in ("train", "valid"))
    assert maker.decider.return_scale.tolist() == pytest.approx([float(train.mean()), float(train.std(correction=0))], rel=1e-4)
    assert abs(float(train.mean() - valid.mean())) > 1e-2  # that of valid would be another one


@pytest.fixture(scope="module")
def maker(tiny_runs: dict[str, Path]) -> heedful.DecisionMaker:
    return heedful.DecisionMaker.load(tiny_runs["decisions"])


@pytest.mark.parametrize("context", [30, 6])
def test_a_roll_out_takes_the_actions_that_act_would_take(context: int, maker: heedful.DecisionMaker) -> None:
    """With cached keys and values as without, and where the window of steps moves on; in the world's exact dynamics."""
    policy, world = maker.policy, make_world(0)
    policy = policy._replace(data=DecisionData(maker.run))
    policy.data.config = policy.data.config.model_copy(update={"context": context})
    rewards_seen = set()
    for episode in roll_out(policy, world, world.starts[:4], 3.0, greedy=True):
        cells = [state["cell"] for state in episode.states]
        for at in range(len(cells)):
            history = {
                "desired": 3.0,
                "states": cells[: at + 1],
                "actions": episode.actions[:at],
                "rewards": episode.rewards[:at],
            }
            row = maker.encode_history(policy.data, maker.read_input(policy.data, history, 1))
            assert policy.data.actions[int(policy.probabilities(row)[0].argmax())] == episode.actions[at]
        rewards_seen |= set(episode.rewards)
        assert len(cells) == len(episode.rewards) <= world.limit
    assert rewards_seen


def test_what_remains_of_the_desired_return_falls_by_every_reward(maker: heedful.DecisionMaker) -> None:
    """The inputs of the map of returns, recorded during a roll-out."""
    layer, world, seen = maker.decider.returns, make_world(0), []
    assert layer is not None
    hook = layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0][:, 0, 0].clone()))
    episodes = roll_out(maker.policy, world, world.starts[:5], 3.0)
    hook.remove()
    mean, deviation = maker.decider.return_scale
    given = torch.stack(seen[::2], dim=1) * deviation + mean  # (episodes, steps): once for the state, once for the action
    for row, episode in enumerate(episodes):
        remains = [3.0 - sum(episode.rewards[:at]) for at in range(len(episode.rewards))]
        assert given[row, : len(remains)].tolist() == pytest.approx(remains, abs=1e-4)


def test_an_episode_depends_neither_on_others_nor_on_their_number(maker: heedful.DecisionMaker) -> None:
    few, many, other = maker.rollout(2.0, 3), maker.rollout(2.0, 9), maker.rollout(2.0, 9, seed=1)
    assert few == many[:3]
    assert many != other and len({tuple(one.actions) for one in many}) > 1


def test_the_report_compares_desired_and_reached_returns_from_the_same_starts(maker: heedful.DecisionMaker) -> None:
    report = maker.compare([1.0, 2.0, 5.0], 6, against=maker)
    assert [row.desired for row in report.rows] == [1.0, 2.0, 5.0]
    assert all(row.returns == row.against and len(row.returns) == 6 for row in report.rows)
    assert max(max(row.returns) for row in report.rows) <= max(make_world(0).optimal_returns().values())
    assert report.optimal >= max(row.interval.mean for row in report.rows) - 1e-9
    assert "rank correlation" in report.text() and report.to_dict()["rollouts"][1]["desired"] == 2.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"desired": [float("nan")]}, "desired: given nan, expected a number within ±1e\\+06"),
        ({"desired": [float("inf")]}, "desired: given inf, expected a number within"),
        ({"desired": []}, "desired: given no return, expected one or more"),
        ({"episodes": 0}, "episodes: given 0, expected at least 1"),
        ({"split": "tset"}, "unknown split 'tset'; expected one of: train, valid, test"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_one_sentence(
    options: dict[str, Any], sentence: str, maker: heedful.DecisionMaker
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        maker.compare(**{"desired": [1.0], "episodes": 2, **options})


HISTORY = {"desired": 9, "states": ["a1", "a2"], "actions": ["down"], "rewards": [-0.2]}


def test_act_and_a_line_of_json_give_the_same_decision(maker: heedful.DecisionMaker) -> None:
    decision = maker.act(["a1", "a2"], ["down"], [-0.2], desired=9)
    (other,) = maker.predictions([json.dumps(HISTORY)])
    assert decision == other and sum(decision.probabilities.values()) == pytest.approx(1)
    assert [maker.predict(HISTORY)] == maker.predict([HISTORY]) == [decision.action]
    assert decision.action == max(decision.probabilities, key=lambda action: decision.probabilities[action])
    assert decision.probabilities != maker.act(["a1", "a2"], ["down"], [-0.2], desired=-4).probabilities


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": []}, "history 1 has 0 states, 1 actions and 1 rewards; expected one state more than actions"),
        ({"actions": []}, "history 1 has 2 states, 0 actions and 1 rewards"),
        ({"rewards": ["much"]}, 'history 1: reward 1 is "much"; expected a finite number'),
        ({"desired": 1e31}, "history 1: 'desired' is 1e\\+31; expected a number within"),
        ({"desired": None}, "history 1 has no desired return; expected a number"),
        ({"desired": "high"}, "history 1: 'desired' is \"high\"; expected a finite number"),
        ({"actions": ["jump"]}, "history 1, step 1 has the action 'jump', which the training data does not have"),
        ({"states": ["a1", "z9"]}, "history 1, step 2 has the state 'cell=z9', which the training data does not have"),
        ({"states": "a1"}, "history 1: states is 'a1'; expected a list"),
        ({"state": ["a1"]}, "expected an object with states, and optionally actions, rewards, desired"),
    ],
    ids=str,
)
def test_a_history_that_cannot_be_used_is_one_sentence(
    change: dict[str, Any],
    message: str,
    maker: heedful.DecisionMaker,
    tiny_runs: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        maker.predict([HISTORY | change])


def test_what_remains_of_a_return_has_no_rounding_error_in_the_name_of_its_token(maker: heedful.DecisionMaker) -> None:
    history = {"desired": 0.8, "states": ["a1"] * 5, "actions": ["down"] * 4, "rewards": [0.3, 0.4, 0.1, 0.0]}
    assert 0.8 - 0.3 - 0.4 - 0.1 != 0
    assert maker.encode_example(json.dumps(history)).inputs[::3] == ["R1=0.8", "R2=0.5", "R3=0.1", "R4=0", "R5=0"]


def test_analyses_name_the_tokens_and_predict_as_the_command_does(maker: heedful.DecisionMaker) -> None:
    text = json.dumps(HISTORY)
    example = maker.encode_example(text)
    assert example.inputs == ["R1=9", "s1=a1", "a1=down", "R2=9.2", "s2=a2"]
    decision = next(maker.predictions([text]))
    assert example.outputs.pieces == ["down", decision.action]
    with torch.inference_mode():
        logits = example.logits(maker.model, example.forward(maker.model).hidden)[0, -1]
    assert logits.softmax(-1).tolist() == pytest.approx(list(decision.probabilities.values()), abs=1e-5)
    trace = heedful.inspection.attention(maker, text).trace
    assert [trace.keys(one) for one in trace.maps] == [example.inputs]
    with pytest.raises(ConfigError, match="unknown action 'jump'"):
        maker.encode_example(text, "jump")
    batches = list(maker.forced_batches(maker.sample_texts("valid")))
    with torch.inference_mode():
        total = sum(float(batch.losses().sum()) for batch in batches)
    count = sum(int(batch.mask.sum()) for batch in batches)
    assert total / count == pytest.approx(maker.validate().figures["loss"], rel=1e-4)


def test_own_episodes_have_numbers_and_names_as_states_and_no_roll_outs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{e},{s},{s * e},{'ab'[s % 2]},{'go' if s % 2 else 'stay'},{s}" for e in range(8) for s in range(5)]
    (tmp_path / "a.csv").write_text("\n".join(("episode,step,x,room,action,reward", *rows)) + "\n")
    data = {"form": "trajectories", "states": ["x", "room"], "categorical": ["room"], "batch": 4}
    data |= {split: {"file": str(tmp_path / "a.csv")} for split in ("train", "valid", "test")}
    model = {"family": "gpt", "inputs": "vectors", "dim": 16, "layers": 1, "heads": 2}
    training: dict[str, Any] = {"steps": 40, "save_every": 40, "validate_every": 40}
    training |= {"schedule": {"name": "constant", "learning_rate": 1e-2, "warmup": 1}}
    config = {
        "data": data,
        "model": model,
        "training": training,
        "task": {"name": "decisions", "context": 3, "condition": "none"},
    }
    (tmp_path / "recipe.toml").write_text(write_toml(config))
    assert heed("train", tmp_path / "recipe.toml", "--run", tmp_path / "run") == 0
    maker = heedful.DecisionMaker.load(tmp_path / "run")
    assert (maker.run.task.actions, maker.run.task.features) == (("go", "stay"), ("x", "room=a", "room=b"))
    assert maker.evaluate()["accuracy"] == 1.0  # the room decides
    decisions = [maker.act([state]) for state in ({"x": 3, "room": "b"}, [3, "b"], (3.0, "b"))]
    assert decisions[0].action == "go" and len({str(decision) for decision in decisions}) == 1
    assert maker.act([[0, "a"], [1, "b"], [2, "a"], [3, "b"], [4, "a"]], ["stay", "go"] * 2, [0] * 4).action == "stay"
    with pytest.raises(DataError, match="has a desired return, which has no effect"):
        maker.act([[0, "a"]], desired=1.0)
    capsys.readouterr()
    assert heed("evaluate", tmp_path / "run", "--episodes", "3") == 2
    assert "has no grid world to roll out in" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="has no grid world"):
        maker.rollout()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.inputs=tokens", "model.inputs: given 'tokens'; expected 'vectors', since the task embeds its inputs"),
        ("model.max_positions=89", "given 89, expected at least 90: task.context x 3 tokens"),
        ('task.actions=["up"]', "given ['up'], expected two or more"),
        ('task.actions=["up", "up"]', "expected values that differ"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_run(write_tiny_recipe("decisions", tmp_path), [change])
    assert message in str(raised.value)


@pytest.mark.parametrize("task", ["language", "classification", "translation"])
def test_a_task_of_texts_refuses_a_model_of_vectors(task: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given 'vectors', but the inputs of task"):
        read_run(write_tiny_recipe(task, tmp_path), ['model={family="gpt", dim=16, layers=1, heads=2, inputs="vectors"}'])


@pytest.mark.parametrize("position", ["none", "learned", "rotary"])
def test_a_model_of_vectors_computes_the_same_by_steps(position: Any) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(dim=16, layers=2, heads=2, inputs="vectors", position=position, dropout=0.0), 1, 1).eval()
    vectors = torch.randn(3, 7, 16)
    whole = model.forced(None, None, vectors).hidden
    state, parts = model.start(torch.zeros(3, 0, dtype=torch.int64), None, room=7), []
    for chunk in torch.split(vectors, [2, 3, 1, 1], dim=1):
        hidden, state, _ = model.step(chunk, state)
        parts.append(hidden)
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-5)
    assert model.embeddings() == {} and sum(one.numel() for one in model.position.parameters()) == (1024 * 16) * (
        position == "learned"
    )


def test_equal_returns_are_no_ranking() -> None:
    def facts(*means: float) -> str:
        rows = [Reached(float(at), [mean - 0.5, mean + 0.5] * 8) for at, mean in enumerate(means)]
        return RolloutReport(rows, 7.0, 1.0, 8.0).facts()

    assert "rank correlation of desired and reached 0.894, but the reached returns" in facts(1.0, 1.0, 1.1, 1.1)
    assert facts(1.0, 2.0, 3.0).endswith("rank correlation of desired and reached 1.000")
