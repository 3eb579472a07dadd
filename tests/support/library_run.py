"""A run and its report through the library alone; the argument says where.

python tests/support/library_run.py WORKDIR
"""

import sys

from mnemonics_jax import PerClass, data, methods, networks, phase, report, runs
from mnemonics_jax.progress import Event, Note


def say(event: Event) -> None:
  if isinstance(event, Note):
    print(event.text, flush=True)


def main(workdir: str) -> None:
  stream = data.stream(data.load("digits"), phases=1, images_per_class=20)
  network = networks.resnet8(
    width=4,
    image_shape=stream.image_shape,
    mean=stream.mean,
    std=stream.std,
  )
  schedule = phase.Schedule(2, 0.05, (1,), batch_size=32)
  config = phase.Config(
    network,
    methods.LUCIR(),
    stream.shape,
    memory=PerClass(2),
    exemplars="mnemonics",
    adjust=True,
    finetune="head",
    base=schedule,
    train=schedule,
    balance=schedule,
  )
  saving = runs.Policy(every=0.1)
  results = runs.run(config, stream, workdir, report=say, saving=saving)
  assert results["summary"]["head"]["average"]["mean"] > 0
  print(report.build([workdir]))
  assert not any(name.startswith("experiments") for name in sys.modules)


if __name__ == "__main__":
  main(sys.argv[1])
