"""xgemm in other libraries: a module each, imported by name. None of them is needed by torch_ext itself."""
