# Reads the output of go test -v and prints what a person wants of it: the line
# of each package, the whole log of each failed test, and every skipped test
# with its reason. With CI=true a skipped test fails the run: there, everything
# that a test needs has been installed.

function forget() { split("", log_of); split("", reason); test = full = "" }
function keep(line) { if (test == "") print line; else log_of[test] = log_of[test] line "\n" }

/^=== (RUN|CONT|NAME|PAUSE) / {
	full = $3; test = $3; sub(/\/.*/, "", test)
	if ($2 == "RUN") keep($0)
	failed = 0
	next
}

/^ *--- SKIP: / {
	skips++
	skip[skips] = $3 (reason[$3] == "" ? "" : ": " reason[$3])
}
/^--- (PASS|SKIP): / { delete log_of[$3]; test = full = ""; failed = 0; next }
/^--- FAIL: /        { printf "%s", log_of[$3]; print; delete log_of[$3]; test = full = ""; failed = 1; next }
/^ +--- [A-Z]+: /    { if (failed) print; next }
/^PASS$/             { next }

# The end of a package. What a test that never ended has said (a panic, a time
# limit) is still there then.
/^(ok  |FAIL|\?   )\t/ {
	if ($1 == "FAIL") for (t in log_of) printf "%s", log_of[t]
	for (; named < skips; named++) skip[named + 1] = $2 " " skip[named + 1]
	forget(); failed = 0
	print; fflush()
	next
}

/^ +[^ ]+\.go:[0-9]+: / {
	line = $0; sub(/^ +[^ ]+\.go:[0-9]+: /, "", line)
	reason[full] = line
}
{ keep($0) }

END {
	for (t in log_of) printf "%s", log_of[t]
	for (i = 1; i <= skips; i++) print "skipped: " skip[i]
	if (skips > 0 && ENVIRON["CI"] == "true") {
		print "skipped tests: " skips "; with CI=true none may be"
		exit 1
	}
}
