module istio-operators.io/chart/oracle/template

go 1.26.0
