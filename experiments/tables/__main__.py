from absl import flags

from experiments import command, tables

if __name__ == "__main__":
  # Help and `config.json` speak of the command as it was given.
  __doc__, __spec__ = tables.__doc__, tables.__spec__
  flags.adopt_module_key_flags(tables)
  command.run(tables.main)
