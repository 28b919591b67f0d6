"""TITLE's own class of an LLM, whose writes go to the writer and all else to the main model."""
