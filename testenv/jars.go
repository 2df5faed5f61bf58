package testenv

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// poms are what Maven resolves: one folder per thing that can be run.
//
//go:embed kafka/*/pom.xml
var poms embed.FS

// MirrorMaker2Classpath returns the java class path of MirrorMaker 2 4.3.1
// (main class org.apache.kafka.connect.mirror.MirrorMaker). The first call on
// a machine downloads it.
func MirrorMaker2Classpath(ctx context.Context) (string, error) {
	return classpath(ctx, "mm2-4.3.1")
}

// RealAvailable says whether real clusters can be started, and if not, what
// is missing.
func RealAvailable() (bool, string) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return false, tool + " is not on the PATH"
		}
	}
	return true, ""
}

// classpath returns "dir/*" for the jars of a pom, resolving them into the
// user's cache when they are not there. Several processes may do so at once.
func classpath(ctx context.Context, name string) (string, error) {
	pom, err := poms.ReadFile("kafka/" + name + "/pom.xml")
	if err != nil {
		return "", fmt.Errorf("find jars: %s is not among the versions that testenv knows: %w", name, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find jars: %w", err)
	}
	// The hash of the pom makes a changed pom a new folder.
	sum := sha256.Sum256(pom)
	dir := filepath.Join(cache, "onceover", "kafka-"+name+"-"+hex.EncodeToString(sum[:4]))
	if err := resolve(ctx, pom, dir); err != nil {
		return "", fmt.Errorf("resolve jars of %s: %w", name, err)
	}
	return filepath.Join(dir, "*"), nil
}

func resolve(ctx context.Context, pom []byte, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(dir + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		return nil // another process did it while we waited
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "resolve-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	jars := filepath.Join(tmp, "jars")
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(tmp, "pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+jars)
	if out, err := mvn.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w:\n%s", err, out)
	}
	return os.Rename(jars, dir)
}
