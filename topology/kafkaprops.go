package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// clusterProperties are the settings of a cluster that can be given under
// Kafka's own names, each with the effect that it has.
var clusterProperties = []string{
	"bootstrap.servers", "client.id", "security.protocol",
	"sasl.mechanism", "sasl.jaas.config",
	"ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates",
	"ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key",
	"ssl.endpoint.identification.algorithm",
}

// refusedProperties are Kafka's own, but have no meaning here.
var refusedProperties = map[string]string{
	"ssl.truststore.password":            "PEM needs no password: remove it",
	"ssl.keystore.password":              "PEM needs no password: remove it",
	"ssl.key.password":                   "store the key unencrypted, with file permissions that protect it",
	"sasl.client.callback.handler.class": "Java classes can't be loaded: use " + strings.Join(mechanisms, ", "),
	"sasl.login.callback.handler.class":  "Java classes can't be loaded: use " + strings.Join(mechanisms, ", "),
}

var mechanisms = []string{MechanismPlain, MechanismScramSHA256, MechanismScramSHA512}

// apply takes over what was declared under Kafka's own names. Findings go to
// path.properties.
func (c *Cluster) apply(properties map[string]Value, path string, f *findings) {
	a := &propertiesOf{cluster: c, given: properties, path: path, findings: f}
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if hint, refused := refusedProperties[key]; refused {
			a.add(key, "not supported", hint)
		} else if !slices.Contains(clusterProperties, key) {
			a.add(key, "unknown setting", didYouMean(key, clusterProperties))
		}
	}
	a.connection()
	a.tls()
	a.sasl()
	a.protocol()
}

// propertiesOf carries one cluster's properties through the steps of apply.
type propertiesOf struct {
	cluster  *Cluster
	given    map[string]Value
	path     string
	findings *findings
}

func (a *propertiesOf) add(key, problem, hint string) {
	a.findings.add(a.path+".properties."+key, problem, hint)
}

// text returns the value of a property and whether it was given.
func (a *propertiesOf) text(key string) (string, bool) {
	v, ok := a.given[key]
	return strings.TrimSpace(v.Text), ok
}

// twice reports a setting that the cluster has in both forms.
func (a *propertiesOf) twice(key, other string) {
	a.add(key, "also given as "+other, "keep one of them")
}

func (a *propertiesOf) has(prefix string) (string, bool) {
	for _, key := range clusterProperties {
		if _, ok := a.given[key]; ok && strings.HasPrefix(key, prefix) {
			return key, true
		}
	}
	return "", false
}

func (a *propertiesOf) connection() {
	if servers, ok := a.text("bootstrap.servers"); ok {
		if len(a.cluster.Bootstrap) > 0 {
			a.twice("bootstrap.servers", "bootstrap")
		}
		a.cluster.Bootstrap = splitList(servers)
	}
	if id, ok := a.text("client.id"); ok {
		if _, both := a.findings.lines[a.path+".client_id"]; both {
			a.twice("client.id", "client_id")
		}
		a.cluster.ClientID = id
	}
}

func (a *propertiesOf) tls() {
	first, given := a.has("ssl.")
	if !given {
		return
	}
	if a.cluster.TLS != nil {
		a.twice(first, "tls")
		return
	}
	t := &TLS{}
	a.cluster.TLS = t
	if algorithm, ok := a.text("ssl.endpoint.identification.algorithm"); ok {
		switch strings.ToLower(algorithm) {
		case "":
			t.SkipVerify = true
		case "https":
		default:
			a.add("ssl.endpoint.identification.algorithm", "not supported", `use "https", or "" to accept any certificate`)
		}
	}
	a.storeType("ssl.truststore")
	a.storeType("ssl.keystore")
	t.CAFile, _ = a.text("ssl.truststore.location")
	t.CAPEM, _ = a.text("ssl.truststore.certificates")
	if t.CAFile != "" && t.CAPEM != "" {
		a.twice("ssl.truststore.certificates", "ssl.truststore.location")
	}
	t.CertFile, _ = a.text("ssl.keystore.location")
	t.KeyFile = t.CertFile
	t.CertPEM, _ = a.text("ssl.keystore.certificate.chain")
	key, _ := a.text("ssl.keystore.key")
	t.KeyPEM = Secret(key)
	if t.CertFile != "" && (t.CertPEM != "" || key != "") {
		a.twice("ssl.keystore.location", "ssl.keystore.certificate.chain and ssl.keystore.key")
	}
}

// storeType wants PEM wherever a store is named: Kafka's default is JKS.
func (a *propertiesOf) storeType(store string) {
	const hint = "convert the store to PEM (keytool -exportcert -rfc, or openssl pkcs12 -in store.p12 -nodes) and set the type to PEM"
	kind, given := a.text(store + ".type")
	switch {
	case given && !strings.EqualFold(kind, "PEM"):
		a.add(store+".type", fmt.Sprintf("store type %q is not supported", kind), hint)
	case !given:
		if key, used := a.has(store + "."); used {
			a.add(key, store+".type is missing, and Kafka's default is JKS", hint)
		}
	}
}

func (a *propertiesOf) sasl() {
	first, given := a.has("sasl.")
	if !given {
		return
	}
	if a.cluster.SASL != nil {
		a.twice(first, "sasl")
		return
	}
	s := &SASL{}
	a.cluster.SASL = s
	mechanism, hasMechanism := a.text("sasl.mechanism")
	config, hasConfig := a.text("sasl.jaas.config")
	if !hasMechanism {
		a.add("sasl.jaas.config", "sasl.mechanism is missing, and Kafka's default is GSSAPI", "set it to one of "+strings.Join(mechanisms, ", "))
		a.findings.silence(a.path + ".sasl")
		return
	}
	s.Mechanism = mechanism
	if !hasConfig {
		a.add("sasl.mechanism", "sasl.jaas.config is missing", "it holds the login module with username and password")
		a.findings.silence(a.path + ".sasl")
		return
	}
	login, err := parseJAAS(config)
	if err != nil {
		a.add("sasl.jaas.config", err.Error(), `expected form: <login module> required username="..." password="...";`)
		a.findings.silence(a.path + ".sasl")
		return
	}
	if module := loginModules[mechanism]; module != "" && login.module != module {
		a.add("sasl.jaas.config", fmt.Sprintf("login module %s does not go with sasl.mechanism %s", login.module, mechanism), "use "+module)
	}
	s.Username, s.Password = login.username, login.password
}

// protocol checks security.protocol against what the other settings made:
// without it Kafka's clients would talk in plain text, whatever else is set.
func (a *propertiesOf) protocol() {
	protocol, given := a.text("security.protocol")
	c := a.cluster
	if !given {
		if key, ok := a.has("ssl."); ok {
			a.add(key, "security.protocol is missing, and Kafka's default is PLAINTEXT", "set it to SSL or SASL_SSL")
		} else if key, ok := a.has("sasl."); ok {
			a.add(key, "security.protocol is missing, and Kafka's default is PLAINTEXT", "set it to SASL_PLAINTEXT or SASL_SSL")
		}
		return
	}
	protocol = strings.ToUpper(protocol)
	all := []string{"PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL"}
	if !slices.Contains(all, protocol) {
		a.add("security.protocol", fmt.Sprintf("unknown protocol %q", protocol), didYouMean(protocol, all))
		return
	}
	encrypted, login := strings.HasSuffix(protocol, "SSL"), strings.HasPrefix(protocol, "SASL")
	if encrypted && c.TLS == nil {
		c.TLS = &TLS{}
	}
	if !encrypted && c.TLS != nil {
		a.add("security.protocol", protocol+" contradicts the TLS settings", "use SSL or SASL_SSL, or remove them")
	}
	if login && c.SASL == nil {
		a.add("security.protocol", protocol+" needs sasl.mechanism and sasl.jaas.config", "")
	}
	if !login && c.SASL != nil {
		a.add("security.protocol", protocol+" contradicts the SASL settings", "use SASL_PLAINTEXT or SASL_SSL, or remove them")
	}
}

// fileOrPEM tells a path from PEM text.
func fileOrPEM(s string) (file, pem string) {
	if strings.Contains(s, "-----BEGIN ") {
		return "", s
	}
	return s, ""
}
