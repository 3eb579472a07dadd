"""One phase of mnemonics training: Algorithm 1 of Liu et al. 2020."""

from collections.abc import Callable
import functools

import jax

from mnemonics_jax import exemplars
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.stream import PhaseData
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase import draws
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.context import Journal, Phase, Stage
from mnemonics_jax.phase.evaluate import evaluate_phase
from mnemonics_jax.phase.train import finetune, train_model
from mnemonics_jax.progress import Report, ignore
from mnemonics_jax.types import PhaseResult, PhaseState, Variables


def begin_run(seed: int, config: Config) -> PhaseState:
  """The state before phase 0: Θ at random, an empty memory."""
  model = config.model
  key, init_key = jax.random.split(jax.random.key(seed))
  variables = model.init(init_key)
  variables = config.method.begin_run(variables)
  memory = memory_lib.empty(
    model.classes, model.network.image_shape, config.codec
  )
  return PhaseState(variables, memory, key, phase=0, classes_seen=0)


def run_phase(
  state: PhaseState,
  data: PhaseData,
  config: Config,
  *,
  report: Report = ignore,
  journal: Journal = Journal(),
  train: Callable[[Phase, Stage], Variables] = train_model,
) -> tuple[PhaseState, PhaseResult]:
  """Learns the new classes in `data` and tests on all classes seen.

  It knows nothing of files or flags; whoever calls it saves the state and writes
  down the result.

  Args:
    state: what the phases before have left.
    data: what this one may look at.
    config: what it does.
    report: hears where it is.
    journal: what this phase has done before, if it was interrupted.
    train: the model level instead of `train_model`.
  """
  phase = Phase(state, data, config)
  begin = lambda name: Stage(state.phase, name, report, journal).begin()
  strategy = exemplars.strategy(config)
  changes: dict[str, exemplars.Change] = {}

  # 1. Train Θ on the old exemplars and the new data.
  stage = begin("train")
  variables = stage.finished()
  if variables is None:
    variables = stage.finish(train(phase, stage))
  variables = jax.tree.map(mesh.put_replicated, variables)

  # 2. Choose exemplars of the new classes among their images; learn them.
  stage = begin("exemplars")
  chosen = strategy.choose(phase, variables)
  images = chosen.images
  change = strategy.learn(phase, variables, chosen, stage)
  if change is not None:
    changes["exemplars"], images = change, change.after

  # 3. Adjust the old exemplars, each part validated by the others.
  memory = state.memory
  if phase.adjusts:
    change = exemplars.adjust(phase, variables, begin("adjust"))
    changes["adjust"] = change
    memory = memory_lib.replace(memory, change.after)

  # 4. Store them; a total budget shrinks every class to its new share.
  memory = memory_lib.store(memory, images, chosen.labels)
  rng = None if strategy.ordered else phase.keys.numpy("discard")
  apart = functools.partial(draws.held_share, fraction=config.method.holdout)
  memory = memory_lib.discard(
    rng, memory, phase.most(memory.counts), apart, phase.bytes_allowance
  )
  begin("evaluate")
  trained = final = evaluate_phase(phase, variables, memory)

  # 5. Fine-tune Θ on the memory, in which all classes count alike.
  if phase.finetunes:
    variables = finetune(phase, variables, memory, begin("finetune"))
    begin("evaluate")
    final = evaluate_phase(phase, variables, memory, before=trained)

  # 6. Hand over.
  after = PhaseState(
    variables, memory, state.key, state.phase + 1, phase.classes_seen
  )
  return after, _result(phase, memory, changes, trained, final)


def _result(phase, memory, changes, trained, final):
  """What the phase measured."""
  return PhaseResult(
    phase=phase.state.phase,
    classes_seen=phase.classes_seen,
    confusion={"trained": trained.confusion, "final": final.confusion},
    memory_images=int(memory.counts.sum()),
    memory_bytes=memory_lib.size_bytes(memory),
    diagnostics={name: c.diagnostics() for name, c in changes.items()},
    changed={name: (c.before, c.kept, c.labels) for name, c in changes.items()},
    test_features=(final.features, phase.data.test_labels),
    exemplar_features=(final.exemplar_features, memory_lib.flat(memory)[1]),
  )
