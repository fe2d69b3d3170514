"""Two recordings that come with the package, as a picture in the terminal, and the same story under capstate.

``recordings/`` holds what :mod:`capstate.demo.bundle` made of two recorded sessions of a real agent: no prompt, no
reply, no summary, no argument but the names of tool groups.
"""
