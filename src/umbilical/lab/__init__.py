"""THE LAB: a cluster being born on one Linux machine, in namespaces, with the real programs.

`keeper` is the one process that holds a lab's namespaces; when it ends, the kernel takes everything with it. All
else runs outside and asks it: `lab.Lab` is its face. Scenarios tell a story, breakages break one thing and mend it.
May use every subject; commands of ours are run as users run them.
"""
