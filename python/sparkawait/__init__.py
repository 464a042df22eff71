"""Async I/O for Spark."""
