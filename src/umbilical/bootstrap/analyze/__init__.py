"""Why a bootstrap failed, out of a log bundle: read once as a stream, turned into facts, judged. The bundle is a
stranger's: everything is bounded and nothing of it is run or unpacked."""
