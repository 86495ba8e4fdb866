package results

import "testing"

func TestNumbersThatAreRefused(t *testing.T) {
	of := func(_ int, err error) error { return err }
	rate := func(_ Rate, err error) error { return err }
	for _, tc := range []struct {
		err  error
		want string
	}{
		{of(ParseInt("ttl", "0", 1, 255)), `ttl "0": must be more than 0; use 1 to 255`},
		{of(ParseInt("ttl", "256", 1, 255)), `ttl "256": out of range; use 1 to 255`},
		{of(ParseInt("ttl", "-1", 0, 255)), `ttl "-1": out of range; use 0 to 255`},
		{of(ParseInt("ttl", "many", 0, 255)), `ttl "many": not a count; use 0 to 255`},
		{rate(ParsePPS("10")), `rate "10": no unit; use a number with pps, such as 100kpps, or max`},
		{rate(ParsePPS("5gbps")), `rate "5gbps": is not of datagrams; use a number with pps, such as 100kpps, or max`},
		{rate(ParsePPS("50%")), `rate "50%": is not of datagrams; use a number with pps, such as 100kpps, or max`},
	} {
		if tc.err == nil || tc.err.Error() != tc.want {
			t.Errorf("%v, want %s", tc.err, tc.want)
		}
	}
	for s, want := range map[string]string{"max": "max", "10KPPS": "10kpps"} {
		if r, err := ParsePPS(s); err != nil || r.String() != want {
			t.Errorf("%s: %v %v", s, r, err)
		}
	}
}
