"""ONNX Runtime: conversion, sessions, profiles and error messages."""
