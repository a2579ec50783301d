"""MNN: conversion and sessions."""
