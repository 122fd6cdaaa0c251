"""The app: opens everything; the only place where names become objects."""

from asterism.app.engine import make_model
from asterism.app.home import Asterism

__all__ = ["Asterism", "make_model"]
