from experiments import command, tables
from experiments.tables import request

if __name__ == "__main__":
  FLAGS = request.define_flags()
  with command.session(tables.__doc__, FLAGS, instead=request.DECIDED):
    tables.main(FLAGS)
