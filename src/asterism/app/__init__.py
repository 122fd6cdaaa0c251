"""The app: opens everything; the only place where names become objects."""

from asterism.app.home import Asterism
from asterism.app.parts import make_model

__all__ = ["Asterism", "make_model"]
