"""The HTTP face: a coat over the verbs of `asterism.app`."""
