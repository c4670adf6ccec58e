package main

import (
	"fmt"
	"net/http"
)

// Greeter answers with a greeting (and nothing else).
type Greeter struct {
	Name  string
	Count int
}

func (g *Greeter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.Count++
	switch r.Method {
	case http.MethodGet:
		fmt.Fprintf(w, "hello %s (%d)\n", g.Name, g.Count)
	default:
		http.Error(w, "no such method", http.StatusMethodNotAllowed)
	}
}

func main() {
	greeter := &Greeter{
		Name: "world",
	}
	if err := http.ListenAndServe(":8080", greeter); err != nil {
		panic(err)
	}
}
