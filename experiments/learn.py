"""Class-incremental learning of any of the data sets.

  python -m experiments.learn --dataset=digits --phases=5

Those that have a command of their own, such as experiments.digits, do the same
there.
"""

from experiments import command, flags, running

FLAGS = flags.of_any_run()

if __name__ == "__main__":
  with command.session(__doc__, FLAGS, presets_of=FLAGS["dataset"].default):
    running.learn(FLAGS.dataset, FLAGS)
