"""Where the time of our training steps goes, by XLA's own profiler."""

import bisect
from collections import defaultdict
import glob
import math
import re
import tempfile

import jax

from benchmarks import jax_train
from mnemonics_jax import phase

FORWARD = "convolutions, forward"
BACKWARD = "convolutions, backward"
KERNELS = "of these, gradients of kernels"
REST = "batch norm, ReLU, update, the rest"


def profile(path: str, network: str, kind: str, steps: int):
  """Seconds of an SGD step in which some thread worked on each of its parts."""
  ours = jax_train.Steps(path, network, kind)
  program = ours.compile()
  parts = _parts(program.as_text())
  run = lambda: ours.run(program, 0, steps)

  run()  # The first call is slower.

  def step():
    spans = _trace(run, parts)
    order = (FORWARD, BACKWARD, KERNELS, REST)
    return {part: _union(spans[part]) / steps / 1e9 for part in order}

  return step, {}


def epoch(path: str, network: str):
  """Seconds from the first to the last step of `phase.fit`, and in steps."""
  ours = jax_train.Steps(path, network, "phase")
  _, entry = ours.compile().as_text().split("\nENTRY ")
  (loop,) = re.findall(r"%(while\S*) = ", entry)

  def run():
    begin, key = ours.state.variables, jax.random.key(0)
    jax.block_until_ready(phase.fit(key, begin, ours.pool, ours.task))

  run()  # compiles

  def step():
    spans = _trace(run, {loop: ("steps",)})["steps"]
    starts, stops = zip(*spans, strict=True)
    return (max(stops) - min(starts)) / 1e9, _union(spans) / 1e9

  return step, {}


def _trace(run, parts):
  """Runs it, and for each part of a step when something worked on it."""
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0  # It would slow down what is between steps.
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder, profiler_options=options):
      run()
    (file,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    trace = jax.profiler.ProfileData.from_file(file)
  begun, ended = defaultdict(list), defaultdict(list)
  for plane in trace.planes:
    for line in plane.lines:
      for event in line.events:
        if event.name in parts:
          begun[event.name].append((event.start_ns, event.end_ns))
        elif event.name.startswith((_END + "conv", _END + "while")):
          ended[event.name.removeprefix(_END)].append(event.start_ns)
  spans = defaultdict(list)
  for name, times in begun.items():
    for part in parts[name]:
      spans[part] += _until(sorted(times), sorted(ended[name]))
  return spans


_NATIVE = {
  "conv2d": (FORWARD,),
  "conv2d_dx": (BACKWARD,),
  "conv2d_dw": (BACKWARD, KERNELS),
}
# Convolutions and loops may go on in other threads when their event is over.
_END = "end: "


def _until(times, ends):
  """Each time span up to the first end that comes before the next begins."""
  followers = [start for start, _ in times[1:]] + [math.inf]
  for (start, stop), following in zip(times, followers, strict=True):
    at = bisect.bisect_left(ends, start)
    late = ends[at] if at < len(ends) and ends[at] < following else stop
    yield start, max(stop, late)


def _parts(text):
  """The parts of a step to which each instruction that is traced belongs."""
  native = re.findall(r'%(\S+) = .*"mnemonics-[^"]*-(conv2d\w*)"', text)
  parts = {name: _NATIVE[of] for name, of in native}
  for name, of in re.findall(r'%(\S+) = .*op_name="([^"]*)"', text):
    if name in parts:
      continue
    # Gradients of kernels are loops of their own, inside the loop over steps.
    if re.search(r"/Conv_\d+/.*while", of):
      if name.startswith("while"):
        parts[name] = (BACKWARD, KERNELS)
    elif re.match("ynn_fusion|conv", name):
      parts[name] = (BACKWARD if "transpose(" in of else FORWARD,)
    elif not name.startswith("while"):
      parts[name] = (REST,)
  return parts


def _union(spans):
  """The length of what intervals cover together."""
  total = end = 0
  for start, stop in sorted(spans):
    total += max(0, stop - max(start, end))
    end = max(end, stop)
  return total
