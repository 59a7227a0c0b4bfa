"""Whole algorithms: what is sent, what is answered, what is made of the answers."""

from coreshot.methods.one_shot import OneShot as OneShot
